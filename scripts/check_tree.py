"""Checks src/abreast: described packages, no class name twice, no import circle, stray task."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

MAX_MODULES = 12
EXEMPT = {"cli/commands"}  # one module per command
DEFAULT = Path(__file__).parents[1] / "src/abreast"

TASK_STARTERS = {
    "Task",
    "TaskGroup",
    "create_task",
    "ensure_future",
    "gather",
    "run_coroutine_threadsafe",
}
STARTS_TASKS = {  # ARCHITECTURE.md says why
    "executors/driver_requests.py",
    "executors/ray/work.py",
    "jobs/candidates/behaviour/warm_parents.py",
    "jobs/candidates/timing/timed_process.py",
    "jobs/matrix/job.py",
    "jobs/matrix/tools.py",
    "jobs/workflow/job.py",
    "run/calls/batch/gatherer.py",
    "run/map/attempts.py",
    "sync.py",
}


def repeated_names(source: Path) -> Iterator[str]:
    """One sentence for each public class name that is defined more than once."""
    homes = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path.relative_to(source).as_posix())
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield f"the class {name} is defined in {' and in '.join(paths)}: rename one"


def package_faults(source: Path) -> Iterator[str]:
    """One sentence for each package that is too large or not described."""
    for init in sorted(source.rglob("__init__.py")):
        package = init.parent.relative_to(source).as_posix()
        modules = [path for path in init.parent.glob("*.py") if not path.name.startswith("__")]
        if len(modules) > MAX_MODULES and package not in EXEMPT:
            yield f"{package} has {len(modules)} modules, more than {MAX_MODULES}: divide it"
        if not ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))):
            yield f"{package}/__init__.py does not say what the package is"
    for folder in sorted({path.parent for path in source.rglob("*.py")}):
        if not (folder / "__init__.py").exists():
            yield f"{folder.relative_to(source).as_posix()} has modules and no __init__.py"


def import_circles(source: Path) -> Iterator[str]:
    """A sentence for the first circle of imports, those under TYPE_CHECKING counted."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {}
    for name, path in modules.items():
        found = {one if one in modules else one.rpartition(".")[0] for one in imports_of(path)}
        graph[name] = {one for one in found - {name} if one in modules}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # It lists each module after one that it imports.
        yield f"a circle of imports: {' -> '.join(reversed(error.args[1]))}"


def imports_of(path: Path) -> Iterator[str]:
    """What a file imports, anywhere in it: `package.module`, or `package.module.name`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def stray_tasks(source: Path, allowed: set[str]) -> Iterator[str]:
    """One sentence for each call that starts a task outside of the modules that may."""
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        calls = [
            (node.lineno, starter)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and (starter := called_name(node)) in TASK_STARTERS
        ]
        if name in allowed and not calls:
            yield f"{name} starts no task any more: take it out of STARTS_TASKS"
        elif name not in allowed:
            for line, starter in calls:
                yield f"{name}:{line} calls {starter}: only run/map/attempts.py starts tasks"


def called_name(call: ast.Call) -> str:
    """The last name of what is called: `create_task` of `loop.create_task(...)`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def main() -> None:
    """Print all faults; exit 1 if there are any."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    faults = [
        *repeated_names(source),
        *package_faults(source),
        *import_circles(source),
        *stray_tasks(source, STARTS_TASKS),
    ]
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()

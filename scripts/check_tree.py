"""Checks the tree of src/abreast: small, described packages, and no public class name twice."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

MAX_MODULES = 12
EXEMPT = {"cli/commands"}  # one module per command
DEFAULT = Path(__file__).parents[1] / "src/abreast"


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


def main() -> None:
    """Print all faults; exit 1 if there are any."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    faults = [*repeated_names(source), *package_faults(source)]
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()

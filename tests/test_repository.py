"""What the repository promises about itself.

Its gates stop a change that breaks something, and its habits are held.
"""

from __future__ import annotations

import ast
import graphlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, get_args

import pytest

from tests.longest import longest_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"

CLOCKS = frozenset({"time", "monotonic", "perf_counter", "process_time", "thread_time"})
TELLING = CLOCKS | {"now", "utcnow"}  # the last names of calls that read one
SLEEPERS = ("time", "asyncio")
CONTAINERS = frozenset(
    {"list", "dict", "set", "bytearray", "deque", "Counter", "defaultdict", "OrderedDict", "count"}
)
CHANGES = re.compile(
    r"(append|extend|pop|rotate)(left)?|insert|remove|popitem|clear|sort|reverse|add|discard|setdefault|subtract|(\w+_)?update"
)
# What warns, or will, on a Python that is supported and later than the oldest one.
DEPRECATED = re.compile(
    r"asyncio\.(get_event_loop|[gs]et_event_loop_policy|[gs]et_child_watcher|iscoroutinefunction)|codecs\.open|os\.fork(pty)?"
    r"|datetime\.utc(now|fromtimestamp)|pkgutil\.(find|get)_loader|locale\.getdefaultlocale|sys\.last_(type|value|traceback)"
    r"|ast\.(Num|Str|Bytes|NameConstant|Ellipsis)|typing\.(ByteString|no_type_check_decorator)|sqlite3\.version(_info)?"
)
# Definitions that nothing in src mentions, and why they are there all the same.
UNMENTIONED = {
    "DrawFilter": "for users' loggers: which draw a record belongs to",
    "end_batches": "of the storm server: for tests of batches",
    "join_path": "the form of a path; the driver spells it out, item by item",
}
COMING: dict[str, str] = {}
"""Parts of a job whose command is still to come: nobody needs them yet.

Remove them here once somebody does.
"""


@cache
def config() -> Mapping[str, dict]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def files() -> tuple[Path, ...]:
    """What belongs to the repository.

    What git has or would take, or, where there is no git, what lies there.
    """
    if shutil.which("git") and (ROOT / ".git").exists():
        command = [
            "git",
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        names = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        return tuple(path for name in names if name and (path := ROOT / name).is_file())
    built = {"build", "dist", "__pycache__"}
    return tuple(
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(part[0] == "." or part in built for part in path.relative_to(ROOT).parts[:-1])
    )


def python_files(folder: str) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.is_relative_to(ROOT / folder)]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All of a module's nodes: to walk it takes longer than to parse it."""
    return tuple(ast.walk(tree))


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


# --- the gate


TOOL = """#!/bin/sh
name=$(basename "$0")
echo "$name $*" >> "$LOG"
case "$name $*" in
  "coverage combine"*) touch .coverage ;;
esac
case "$name $*" in
  $BREAKS) echo "broken: $name $*" >&2; exit 3 ;;
esac
"""


class Gate:
    """The Makefile and .ci/run in a temporary project.

    Its tools only log that they were called, or fail.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "log"
        for name in (
            "Makefile",
            ".ci/beside",
            ".ci/run",
            "pyproject.toml",
            "requirements/build.txt",
            "requirements/clients.txt",
            "requirements/clients-openai2.txt",
            "requirements/dev.txt",
            "requirements/ray.txt",
            "requirements/run.txt",
            "requirements/uv.txt",
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        for folder in ("src", "tests", "examples", ".venv/bin"):
            (root / folder).mkdir(parents=True)
        for tool in (
            "abreast",
            "python",
            "ruff",
            "mypy",
            "lint-imports",
            "coverage",
            "pytest",
            "sphinx-build",
            "uv",
        ):
            (root / ".venv/bin" / tool).write_text(TOOL)
            (root / ".venv/bin" / tool).chmod(0o755)
        for step in ("made", "uv", "tools"):
            (root / f".venv/.{step}").touch()
        for clients in ("clients", "clients-openai2"):
            (root / "build/env" / clients).mkdir(parents=True)
            (root / "build/env" / clients / ".made").touch()

    def run(
        self, *command: str, breaks: str = "nothing", ci: str = "true"
    ) -> tuple[int, list[str]]:
        """Run a command of the project, with every call that matches `breaks` failing.

        Its code, and the calls.
        """
        self.log.write_text("")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MAKE", "MFLAGS"))
        }
        environment = {**inherited, "LOG": str(self.log), "BREAKS": breaks, "CI": ci}
        done = subprocess.run(
            command,
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, self.log.read_text().splitlines()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


GATES = {
    "the build": "* pip install *--editable .",
    "the tests": "coverage run -m pytest -n*",
    "the slow tests": "pytest *--slow",
    "the tests of Ray": "coverage run -m pytest --ray -m ray*",
    "the measurements": "coverage combine*",
    "style": "ruff check .",
    "sleeps in tests": "ruff check *banned-api*time.sleep*tests",
    "format": "ruff format --check .",
    "types": "mypy",
    "the arrow of imports": "lint-imports*",
    "the tree": "python scripts/check_tree.py",
    "coverage of the core": "coverage report --include=*--fail-under=97",
    "coverage of all": "coverage report --fail-under=93",
    "the documentation": "sphinx-build *-W*docs*",
    "the requirements": "python scripts/check_requirements.py",
    "the reference": "python scripts/cli_reference.py --check",
    "the speed": "python -m benchmarks.regression --short",
    "real clients": "python -m benchmarks.served_clients",
}


def test_the_demo_installs_the_command_once_and_starts_it(gate):
    code, calls = gate.run("make", "demo")
    assert code == 0
    packages, itself, demo = calls
    assert "-r requirements/run.txt -r requirements/build.txt" in packages
    assert itself.startswith("uv pip install ")
    assert itself.endswith(" --editable .")
    assert demo == "abreast demo"
    assert gate.run("make", "demo") == (0, ["abreast demo"])


def test_where_uv_cannot_install_pip_does(gate):
    code, calls = gate.run("make", "demo", breaks="uv*")
    assert code == 0
    tried, packages, _, itself, demo = calls
    assert tried.startswith("uv pip install ")
    assert packages.startswith("python -m pip install ")
    assert itself.startswith("python -m pip install ")
    assert tried.partition(" --no-deps ")[2] == packages.partition(" --no-deps ")[2]
    assert demo == "abreast demo"


def test_one_command_runs_every_gate(gate):
    code, calls = gate.run(".ci/run")
    assert code == 0
    for name, pattern in GATES.items():
        assert any(
            re.fullmatch(pattern.replace(".", r"\.").replace("*", ".*").strip(), call.strip())
            for call in calls
        ), name


@pytest.mark.parametrize("broken", GATES)
def test_a_gate_that_fails_stops_the_one_command(gate, broken):
    pattern = GATES[broken].replace(" ", r"\ ").rstrip("*") + "*"
    code, calls = gate.run(".ci/run", breaks=pattern)
    assert code != 0
    assert calls  # it came so far


def test_the_whole_suite_runs_and_not_a_part_of_it(gate):
    measured = [
        "coverage run -m pytest --ray -m ray and not soak --hypothesis-profile=quick",
        "coverage run -m pytest -n 3 --dist worksteal --short --hypothesis-profile=quick",
        "pytest -n 3 --dist worksteal --slow",
    ]
    quick = ["pytest -n 4 --dist worksteal --quick --hypothesis-profile=quick"]
    for ci, commands in (("true", measured), ("", quick)):
        _, calls = gate.run("make", "test", ci=ci)
        assert sorted(call for call in calls if "pytest" in call) == commands
    options = config()["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    assert [
        option
        for option in options["addopts"]
        if "ignore" in option or option in ("-k", "-x", "--lf")
    ] == []
    assert options["addopts"][options["addopts"].index("-m") + 1] == "not soak"


@pytest.mark.parametrize(("file", "most"), [("slow", 480), ("long", 200), ("unmeasured", 230)])
def test_what_is_left_out_is_there_and_few(file, most):
    lines = text_of(f"tests/{file}.txt").splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    assert listed == sorted(set(listed))
    assert len(listed) <= most
    for line in listed:
        path, _, name = line.partition("::")
        assert re.search(rf"def {name.rpartition('::')[2]}\b", text_of(path)), (
            f"{line} is not there"
        )


def test_the_longest_are_all_there_and_the_first_of_each_worker():
    lines = text_of("tests/longest.txt").splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    slow = text_of("tests/slow.txt").splitlines()
    assert [line for line in listed if not any(test.startswith(line) for test in slow)] == []

    names = [*(f"tests/test_other.py::test_{number}" for number in range(20)), *reversed(listed)]
    items = [SimpleNamespace(nodeid=f"{name}[one]") for name in names]
    ordered = longest_first(items, workers=2)
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    first, second = ([item.nodeid for item in half] for half in (ordered[:19], ordered[19:]))
    for half, share in ((first, listed[0::2]), (second, listed[1::2])):
        assert half[: len(share)] == [f"{name}[one]" for name in share]


def test_a_suite_that_failed_leaves_nothing_for_the_check_to_trust(gate):
    gate.run("make", "test")
    assert (gate.root / ".coverage").exists()
    assert gate.run("make", "test", breaks="coverage\\ run*")[0] != 0
    assert not (gate.root / ".coverage").exists()


def test_coverage_counts_branches_and_children_and_leaves_out_no_module():
    measured = config()["tool"]["coverage"]
    assert measured["run"]["branch"] is True
    assert measured["run"]["source_pkgs"] == ["abreast"]
    assert "subprocess" in measured["run"]["patch"]
    assert not {"omit", "include"} & {*measured["run"], *measured["report"]}
    marks = re.findall(
        r"#\s*pragma: no (?:cover|branch)(.*)",
        "".join(path.read_text() for path in python_files("src")),
    )
    assert all(reason.strip(" -") for reason in marks), "what is left out of coverage says why"


def branches(count: int) -> str:
    """A function with so many branches."""
    lines = [f"    if x > {number}:\n        x += 1\n" for number in range(count)]
    return f"def f(x):\n{''.join(lines)}    return x\n"


HALF, WHOLE = "f(99)\n", "f(99)\nf(-1)\n"
MUCH = {
    "cli/much.py": (300, WHOLE)
}  # so that the whole is well above its floor, whatever the rest is


@pytest.mark.parametrize(
    ("modules", "passes"),
    [
        ({"core/a.py": (30, WHOLE), "jobs/plan/b.py": (30, WHOLE), "cli/c.py": (30, WHOLE)}, True),
        ({**MUCH, "core/a.py": (30, WHOLE), "jobs/plan/b.py": (30, HALF)}, False),
        ({**MUCH, "core/a.py": (30, WHOLE), "jobs/sample/b.py": (20, "")}, False),
        ({**MUCH, "core/a.py": (30, WHOLE), "run/b.py": (20, "")}, False),
        ({**MUCH, "core/a.py": (30, WHOLE), "cli/c.py": (10, "")}, True),
        ({"core/a.py": (30, WHOLE), "cli/c.py": (30, "")}, False),
        ({"core/a.py": (30, WHOLE), "cli/c.py": (30, HALF)}, False),
    ],
    ids=[
        "all",
        "half of the branches of a plan",
        "a new module of a sample",
        "a new module of the core",
        "a little",
        "a new module",
        "half of the branches",
    ],
)
def test_code_that_no_test_reaches_is_refused_by_the_floors_as_the_real_tool_measures_it(
    gate, modules, passes
):
    """Run the real coverage over a package made of `modules`.

    The settings and the Makefile are this project's.
    """
    package = gate.root / "src/abreast"
    test = ["import sys", f"sys.path.insert(0, {str(gate.root / 'src')!r})", "import abreast"]
    for name, (count, calls) in modules.items():
        place = package / name
        for folder in [place.parent, *place.parent.parents]:
            if folder.is_relative_to(package):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "__init__.py").touch()
        place.write_text(branches(count))
        if calls:
            test += [f"from abreast.{name[:-3].replace('/', '.')} import f", calls]
    (gate.root / "run.py").write_text("\n".join(test))
    real = gate.root / ".venv/bin/coverage"
    real.write_text(f'#!/bin/sh\nexec {sys.executable} -m coverage "$@"\n')
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COV", "PYTHON", "MAKE"))
    }
    (gate.root / ".venv/.dev").touch()
    # One start for both.
    steps = "from coverage.cmdline import main; main(['run', 'run.py']); main(['combine', '-q'])"
    subprocess.run(
        [sys.executable, "-c", steps],
        cwd=gate.root,
        env=inherited,
        check=True,
        capture_output=True,
        timeout=60,
    )
    done = subprocess.run(
        ["make", "coverage"],
        cwd=gate.root,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "TOTAL" in done.stdout, done.stderr
    assert (done.returncode == 0) == passes, done.stdout


def test_the_linter_has_every_rule_on_and_says_why_where_one_is_off():
    lint = config()["tool"]["ruff"]["lint"]
    assert lint["select"] == ["ALL"]
    table = (
        text_of("pyproject.toml")
        .partition("[tool.ruff.lint]")[2]
        .partition("[tool.ruff.lint.flake8")[0]
    )
    for line in table.splitlines():
        if re.match(r'\s+"[A-Z]+\d*",?', line):
            assert re.search(r"#\s*\S", line), f"no reason: {line}"


def test_types_are_strict_and_no_file_of_src_is_exempt():
    mypy = config()["tool"]["mypy"]
    assert mypy["strict"] is True
    assert "src" in mypy["files"]
    assert (
        not {"exclude", "ignore_errors", "follow_imports", "ignore_missing_imports"} & mypy.keys()
    )
    for override in mypy.get("overrides", []):
        assert not {"ignore_errors", "follow_imports"} & override.keys(), override
        assert not any(
            name.startswith("disallow") and value is False for name, value in override.items()
        ), override
    for path in python_files("src"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"#\s*(mypy:|ruff: *noqa|flake8: *noqa)", text), (
            f"{path} exempts itself"
        )
        assert not re.match(r"\s*#\s*type:\s*ignore", text), f"{path} exempts itself"


def test_every_warning_is_an_error():
    assert config()["tool"]["pytest"]["ini_options"]["filterwarnings"] == ["error"]
    with pytest.raises(DeprecationWarning):
        warnings.warn("soon to go", DeprecationWarning, stacklevel=1)


# --- what a contributor is told


def sections(name: str) -> dict[str, str]:
    """The text beneath each heading of a page."""
    found = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text_of(name), re.MULTILINE | re.DOTALL)
    return {
        heading: re.sub(r"[ \t]*\n(?![-|\n])[ \t]*", " ", text).strip() for heading, text in found
    }


def test_the_guide_asks_for_an_issue_that_was_agreed_to_before_a_change():
    first = sections("CONTRIBUTING.md")["Before you start"].split(". ")[0]
    assert re.search(r"change begins with an issue\b.*\bmaintainer has agreed", first), first


ADDITIONS = {
    "A new job": "src/abreast/jobs",
    "A new limit": "src/abreast/limits",
    "A new store or executor": "src/abreast/store",
    "A new provider": "src/abreast/models",
    "A new agent": "src/abreast/agents",
    "A new option": "src/abreast/cli/options.py",
    "A new hook or event": "src/abreast/core/events.py",
    "A new command": "src/abreast/cli",
    "A new API of the server": "src/abreast/serve",
    "A new dependency": "docs/dependencies.md",
    "A faster way": "benchmarks",
}
"""What a change may add, and where such things are.

A package that is none of these needs a row of its own.
"""


def test_the_guide_says_for_each_kind_of_addition_what_a_review_looks_at():
    asked_for = sections("CONTRIBUTING.md")["What a review looks at"]
    rows = dict(re.findall(r"^\| (A [^|]+?) \| ([^|]+?) \|$", asked_for, re.MULTILINE))
    assert rows.keys() == ADDITIONS.keys()
    assert all(len(asked.split()) >= 8 for asked in rows.values()), rows
    assert len(set(rows.values())) == len(rows)
    assert [place for place in ADDITIONS.values() if not (ROOT / place).exists()] == []
    packages = {path.parent.name for path in (SOURCE / "abreast").glob("*/__init__.py")}
    of_kinds = {Path(place).name for place in ADDITIONS.values()} | {"executors", "core"}
    # What is added to none of these has no kind of its own: parts that jobs and commands are made
    # of.
    assert packages - of_kinds == {
        "assembly",
        "run",
        "system",
        "testing",
        "views",
        "web",
        "worktrees",
    }


def test_what_the_guide_names_is_there():
    guide = text_of("CONTRIBUTING.md")
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", guide, re.MULTILINE))
    known = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    assert len(targets) >= 5
    assert targets <= known, targets - known
    paths = {
        path
        for path in re.findall(r"`([\w./-]+)`", guide)
        if "/" in path or path.endswith((".md", ".toml"))
    }
    paths -= {"origin/main"}  # a branch
    missing = [
        path
        for path in paths
        if not ((ROOT / path).exists() or (SOURCE / "abreast" / path).exists())
    ]
    assert missing == []


# --- habits of tests


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
    return (
        n
        for n in nodes_of(tree)
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )


def is_container(value: ast.AST | None) -> bool:
    if isinstance(value, ast.Call):
        called = value.func
        name = (
            called.attr
            if isinstance(called, ast.Attribute)
            else called.id
            if isinstance(called, ast.Name)
            else ""
        )
        return name in CONTAINERS
    return isinstance(
        value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    )


def names_bound(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """The names that a statement binds, and to what."""
    if isinstance(node, ast.Assign):
        yield from (
            (target.id, node.value) for target in node.targets if isinstance(target, ast.Name)
        )
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value


def locals_of(function: ast.AST) -> set[str]:
    arguments = [node.arg for node in ast.walk(function) if isinstance(node, ast.arg)]
    stored = [
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    return {*arguments, *stored}


def root_name(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def changed_by(node: ast.AST) -> Iterator[ast.AST]:
    """What a node changes in place: the thing itself, not what is bound to its name."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and CHANGES.fullmatch(node.func.attr)
    ):
        yield node.func.value
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "next"
        and node.args
    ):
        yield node.args[0]
    elif isinstance(node, ast.Assign | ast.Delete):
        yield from (t for t in node.targets if isinstance(t, ast.Attribute | ast.Subscript))
    elif isinstance(node, ast.AugAssign):
        yield node.target


def shared_state(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each place where tests of a module share something that one of them may change."""
    bound = dict(pair for node in tree.body for pair in names_bound(node))
    containers = {name for name, value in bound.items() if is_container(value)}
    defined = {
        n.name
        for n in tree.body
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for node in tree.body:
        for name, value in names_bound(node):
            is_known = name.lstrip("_").isupper() or name.startswith("__") or name == "pytestmark"
            if is_container(value) and not is_known:
                yield node, f"{name} is a container at the top of the module"
    for node in nodes_of(tree):
        if isinstance(node, ast.Global):
            yield node, f"global {', '.join(node.names)}"
    suspects = {root_name(changed) for node in nodes_of(tree) for changed in changed_by(node)} & (
        containers | defined
    )
    for function in functions(tree) if suspects else ():
        shared = suspects - locals_of(function)
        for node in ast.walk(function):
            for changed in changed_by(node):
                name = root_name(changed)
                if name in shared and (name in containers or isinstance(changed, ast.Attribute)):
                    yield node, f"{name} is changed by a function"


def last_name(called: ast.expr) -> str:
    """The last part of `a.b.c`."""
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def is_clock(node: ast.AST) -> bool:
    """Whether a node reads a real clock."""
    if not isinstance(node, ast.Call) or last_name(node.func).removesuffix("_ns") not in TELLING:
        return False
    called = ast.unparse(node.func)
    owner, _, name = called.removesuffix("_ns").rpartition(".")
    if owner == "time" or (not owner and name != "time"):
        return name in CLOCKS
    return (
        called.endswith(("datetime.now", "datetime.utcnow", "loop().time", "loop.time"))
        or called == "SYSTEM_CLOCK.now"
    )


def timing(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each place where a test sleeps, asserts what a real clock says, or renames a clock."""
    yield from sleeping(tree)
    for node in nodes_of(tree):
        if renames_a_clock(node):
            yield node, "gives a clock another name, by which it is not seen"


def sleeping(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each place where a test sleeps or asserts what a real clock says."""
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and (node.module, "sleep") in (
            (m, n.name) for m in SLEEPERS for n in node.names
        ):
            yield node, "imports sleep"
        if isinstance(node, ast.Call) and last_name(node.func) == "sleep":
            called = ast.unparse(node.func)
            if called == "time.sleep":
                yield node, "sleeps"
            if called == "asyncio.sleep" and [ast.unparse(argument) for argument in node.args] != [
                "0"
            ]:
                yield node, "sleeps for a time"
    for function in functions(tree) if has_clock(tree, set()) else ():
        timed = {
            name
            for node in ast.walk(function)
            for name, value in names_bound(node)
            if value and has_clock(value, set())
        }
        for _ in range(3):  # what is reckoned from it, and from that
            timed |= {
                n
                for node in ast.walk(function)
                for n, value in names_bound(node)
                if value and has_clock(value, timed)
            }
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and has_clock(node.test, timed):
                yield node, "asserts a wall-clock time"


def renames_a_clock(node: ast.AST) -> bool:
    """Whether an import makes a clock hard to see: `import time as t`, `from time import time`."""
    if isinstance(node, ast.Import):
        return any(
            alias.name == "time" and alias.asname not in (None, "time") for alias in node.names
        )
    if not isinstance(node, ast.ImportFrom) or node.module not in ("time", "timeit"):
        return False
    return any(alias.name in ("time", "default_timer") or alias.asname for alias in node.names)


def has_clock(expression: ast.AST, timed: set[str]) -> bool:
    return any(
        is_clock(n) or (isinstance(n, ast.Name) and n.id in timed) for n in ast.walk(expression)
    )


def test_no_test_shares_what_another_can_change():
    found = [
        f"{where(p, node)}: {what}"
        for p in python_files("tests")
        for node, what in shared_state(tree_of(p))
    ]
    assert found == []


def test_no_test_sleeps_or_asserts_a_wall_clock_time():
    found = [
        f"{where(p, node)}: {what}"
        for p in python_files("tests")
        for node, what in timing(tree_of(p))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "calls = []",
        "_calls: list[int] = []",
        "seen = collections.Counter()",
        "number = 0\ndef test_a():\n    global number\n    number += 1",
        "CALLS = []\ndef test_a():\n    CALLS.append(1)",
        "CALLS = {}\ndef test_a():\n    CALLS['a'] = 1",
        "CALLS = {}\nasync def test_a():\n    def inner():\n        CALLS['a'] += 1",
        "CALLS = {'a': []}\ndef test_a():\n    CALLS['a'].append(1)",
        "CALLS = {1}\ndef test_a():\n    del CALLS[1]",
        "NUMBERS = itertools.count()\ndef test_a():\n    next(NUMBERS)",
        "def work(x):\n    work.calls += 1",
        "class Fake:\n    calls = 0\ndef test_a():\n    Fake.calls = 1",
    ],
)
def test_state_that_tests_share_is_seen(text):
    assert list(shared_state(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "CASES = [1, 2]\ndef test_a():\n    assert CASES[0] == 1",
        "CASES = [1, 2]\ndef test_a(CASES):\n    CASES.append(1)",
        "CASES = {}\ndef test_a():\n    CASES = {}\n    CASES['a'] = 1",
        "def test_a():\n    calls = []\n    calls.append(1)",
        "def test_a():\n    count = 0\n    def work():\n        nonlocal count\n        count += 1",
        "__all__ = ['a']",
    ],
)
def test_state_inside_a_test_is_its_own(text):
    assert not list(shared_state(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "time.sleep(0.1)",
        "from time import sleep",
        "from asyncio import sleep",
        "async def test_a():\n    await asyncio.sleep(0.01)",
        "async def test_a():\n    await asyncio.sleep(delay)",
        "def test_a():\n    start = time.monotonic()\n    assert time.monotonic() - start < 1",
        (
            "def test_a():\n    start = time.time()\n    took = time.time() - start\n"
            "    assert took < 1"
        ),
        "def test_a():\n    start = perf_counter_ns()\n    took = 3 - start\n    assert took < 1",
        "async def test_a():\n    assert asyncio.get_running_loop().time() < 3",
        "import time as t\ndef test_a():\n    start = t.time()\n    assert t.time() - start < 1",
        "from time import time\ndef test_a():\n    start = time()\n    assert time() - start < 1",
        (
            "from time import monotonic as now\n"
            "def test_a():\n    start = now()\n    assert now() - start < 1"
        ),
        "from timeit import default_timer\ndef test_a():\n    assert default_timer() < 1",
    ],
)
def test_a_test_of_time_is_seen(text):
    assert list(timing(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "async def test_a():\n    await asyncio.sleep(0)",
        "def test_a():\n    assert clock.now() == 3",
        "def test_a():\n    assert SystemClock.now is time.monotonic",
        (
            "def test_a():\n    due = time.monotonic() + 9\n"
            "    while time.monotonic() < due:\n        pass"
        ),
    ],
)
def test_a_test_of_something_else_is_not_one_of_time(text):
    assert not list(timing(ast.parse(text)))


# --- the imports


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_at_once(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that are carried out when the module is.

    Not those of a function, nor those for type checkers only.
    """
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def modules_of(node: ast.Import | ast.ImportFrom, known: set[str]) -> set[str]:
    """Which of the known modules an import names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & known
    inner = {f"{node.module}.{alias.name}" for alias in node.names}
    return (inner & known) or ({str(node.module)} & known)


def graph() -> dict[str, set[str]]:
    paths = {module_name(path): path for path in python_files("src")}
    known = set(paths)
    return {
        name: {
            found for node in imported_at_once(tree_of(path)) for found in modules_of(node, known)
        }
        - {name}
        for name, path in paths.items()
    }


def test_no_two_modules_import_each_other_however_far_round():
    found = graph()
    assert len(found) > 50
    assert "abreast.core.window" in found["abreast.run.map.scheduler"]
    graphlib.TopologicalSorter(found).prepare()


def test_the_contract_of_imports_is_kept():
    contracts = config()["tool"]["importlinter"]["contracts"]
    (layers,) = [contract for contract in contracts if contract["type"] == "layers"]
    assert layers["exhaustive"] is True
    assert [re.sub(r"[()]", "", layer) for layer in layers["layers"]][-3:] == [
        "run",
        "limits | store | models | executors",
        "core | system",
    ]
    tool = Path(sys.executable).with_name("lint-imports")
    if tool.exists():
        done = subprocess.run(
            [tool, "--no-cache", "--no-logo"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def required_names() -> set[str]:
    """Everything that an install, an extra or the development takes from elsewhere."""
    project = config()["project"]
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    asked += config()["build-system"]["requires"]
    for path in (ROOT / "requirements").glob("*.in"):
        asked += [
            line
            for line in path.read_text(encoding="utf-8").splitlines()
            if re.match(r"[A-Za-z]", line)
        ]
    return {re.match(r"[A-Za-z0-9._-]+", one)[0].lower() for one in asked} - {"abreast"}


def test_every_dependency_is_chosen_on_purpose_and_the_reason_is_written_down():
    sections = dict(
        re.findall(
            r"^## (.+?)\n(.*?)(?=^## |\Z)",
            text_of("docs/dependencies.md"),
            re.MULTILINE | re.DOTALL,
        )
    )
    run_time = re.findall(
        r"^\| [^|]+ \| ([^|]+) \| [^|]{20,} \|$", sections["At run time"], re.MULTILINE
    )
    development = re.findall(
        r"^\| ([^|]+) \| [^|]{4,} \| [^|]*\|$", sections["For development"], re.MULTILINE
    )
    said = " ".join([*run_time, *development]).lower()
    assert len(required_names()) > 10
    for name in required_names():
        wanted = (
            name.removeprefix("pytest")
            if name.startswith("pytest-")
            else name.removesuffix("-parser")
        )
        assert re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", said), (
            f"docs/dependencies.md has no line about {name}"
        )


def foreign_packages(folders: str) -> set[str]:
    """The packages that modules import, at any depth, except abreast and the standard library."""
    nodes = [
        node
        for path in python_files("src")
        if re.match(rf"abreast/({folders})\b", path.relative_to(SOURCE).as_posix())
        for node in nodes_of(tree_of(path))
    ]
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in found} - {"abreast", *sys.stdlib_module_names}


def test_every_package_that_is_imported_is_declared_and_the_library_needs_none():
    project = config()["project"]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    declared = {
        re.match(r"[A-Za-z0-9_-]+", one)[0].replace("-", "_")
        for one in [*project["dependencies"], *extras]
    }
    imported_as = {"PyYAML": "yaml", "opentelemetry_api": "opentelemetry"}
    declared = {imported_as.get(name, name) for name in declared}
    assert foreign_packages("cli") >= {"click", "rich"}
    # Of typing_extensions, type checkers have their own copy, and nothing else imports it.
    assert foreign_packages(".*") <= declared | {"typing_extensions"}
    assert foreign_packages("__init__|core|limits|store(?!/postgres)|run") == set()
    assert foreign_packages("executors") == {"cloudpickle", "ray"}


# --- the source


def test_no_interface_that_a_supported_python_deprecates_is_used():
    used = {
        (where(path, node), f"{last_name(node.value)}.{node.attr}")
        for path in [*python_files("src"), *python_files("examples")]
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.Attribute)
    }
    # Processes of their own with one thread, where forking is as it always was.
    alone = ("src/abreast/worktrees/sandbox/", "src/abreast/jobs/candidates/child/")
    deprecated = [(place, name) for place, name in used if DEPRECATED.fullmatch(name)]
    assert [
        (place, name)
        for place, name in deprecated
        if not (place.startswith(alone) and name == "os.fork")
    ] == []


def definitions() -> Iterator[tuple[Path, ast.AST, str, str]]:
    """Each class, function and method of src, with the class it stands in."""
    for path in python_files("src"):
        for node in nodes_of(tree_of(path)):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield (
                        path,
                        child,
                        child.name,
                        node.name if isinstance(node, ast.ClassDef) else "",
                    )


@cache
def mentions() -> frozenset[str]:
    """Every name that src reads, calls or spells out."""
    found: set[str] = set()
    for path in python_files("src"):
        for node in nodes_of(tree_of(path)):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.rpartition(":")[2]  # of `module:name`, as in a table of jobs
                if name.isidentifier():
                    found.add(name)
    return frozenset(found)


def is_for_users(name: str, owner: str) -> bool:
    import abreast
    import abreast.testing

    public = {*abreast.__all__, *abreast.testing.__all__, "Map", "Run"}
    return name in public or owner in public


def is_asked_for_by_a_base(path: Path, name: str, owner: str) -> bool:
    """Whether a method stands in for one of a class from elsewhere, which calls it."""
    kind = getattr(importlib.import_module(module_name(path)), owner, object) if owner else object
    return any(
        hasattr(base, name)
        for base in kind.__mro__[1:]
        if not base.__module__.startswith("abreast")
    )


def test_every_definition_is_used():
    mentioned = mentions() | UNMENTIONED.keys()
    unused = [
        f"{where(path, node)}: {name}"
        for path, node, name, owner in definitions()
        if name not in mentioned
        and module_name(path) not in COMING
        and not name.startswith("__")
        and not is_for_users(name, owner)
        and not is_asked_for_by_a_base(path, name, owner)
    ]
    assert unused == []


def test_what_is_excused_from_being_used_is_still_there_and_still_unused():
    defined = {name for _, _, name, _ in definitions()}
    assert UNMENTIONED.keys() <= defined
    assert not UNMENTIONED.keys() & mentions()


def test_the_linter_finds_unused_names_parameters_and_code_that_was_commented_out():
    lint = config()["tool"]["ruff"]["lint"]
    off = [
        *lint["ignore"],
        *(c for glob, codes in lint["per-file-ignores"].items() if "src" in glob for c in codes),
    ]
    assert [
        code for code in off if code.startswith(("F4", "F8", "ARG", "ERA", "ALL")) or code == "F"
    ] == []


def module_mentions(text: str) -> Iterator[str]:
    """The names by which a source may mean a module."""
    for name in re.findall(r"abreast(?:\.\w+)+", text):
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(2, len(parts) + 1))
    for package, names in re.findall(r"from ([\w.]+) import (\([^)]*|[^\n]*)", text):
        yield from (f"{package}.{name}" for name in re.findall(r"\w+", names))
    # a key of a table of modules
    yield from (f'"{name}"' for name in re.findall(r'^ +"(\w+)": ', text, re.MULTILINE))
    # bundled for the child
    yield from re.findall(r'[}"]\.(\w+\.\w+)\b', text)


def test_every_module_is_reached_and_no_file_was_left_over():
    mentioned = {
        path: set(module_mentions(path.read_text(encoding="utf-8"))) for path in python_files("src")
    }
    for path in mentioned:
        name = module_name(path)
        if path.name in ("__init__.py", "__main__.py") or name in COMING:
            continue
        last = name.rpartition(".")[2]
        ways = {name, f'"{last}"', ".".join(name.split(".")[-2:])}
        entry = any(name in script for script in config()["project"]["scripts"].values())
        assert entry or any(ways & names for other, names in mentioned.items() if other != path), (
            f"no module needs {name}"
        )
    leftovers = re.compile(
        r"\.(orig|rej|bak|swp|tmp|pyc|log)$|~$|(^|/)(\.DS_Store|Thumbs\.db|nohup\.out)$"
    )
    assert [path for path in files() if leftovers.search(path.as_posix())] == []


def test_no_file_hides_characters_that_turn_the_direction_of_text():
    turning = re.compile("[\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
    for number in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)):
        assert turning.search(chr(number))
    assert len(files()) > 100
    for path in files():
        if path.suffix == ".png":  # of any bytes, which are no text
            continue
        text = path.read_bytes().decode("utf-8", errors="ignore")
        assert not turning.search(text), (
            f"{path.relative_to(ROOT)} holds a bidirectional control character"
        )


# --- docstrings


def public_definitions(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """The module, its public classes and functions, and their public methods.

    Not what an overload repeats.
    """
    yield tree, "the module"
    waiting = [(tree, "")]
    while waiting:
        node, prefix = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If | ast.Try):
                waiting.append((child, prefix))
            if (
                not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                or child.name[0] == "_"
            ):
                continue
            marks = {ast.unparse(mark).rpartition(".")[2] for mark in child.decorator_list}
            if not marks & {"overload", "override", "setter"}:
                yield child, f"{prefix}{child.name}"
            if isinstance(child, ast.ClassDef):
                waiting.append((child, f"{prefix}{child.name}."))


def test_every_public_name_has_a_docstring():
    bare = [
        f"{where(path, node)}: {name}"
        for path in python_files("src")
        if not any(
            part.startswith("_") and not part.startswith("__")
            for part in path.relative_to(SOURCE).parts
        )
        for node, name in public_definitions(tree_of(path))
        if not (ast.get_docstring(node) or "").strip()
    ]
    assert bare == []


def test_the_linter_asks_for_docstrings_too():
    lint = config()["tool"]["ruff"]["lint"]
    missing = {f"D10{number}" for number in range(8)}
    assert missing & set(lint["ignore"]) <= {
        "D105",
        "D107",
    }  # dunder methods, and __init__ beside its class
    src = [
        code
        for glob, codes in lint["per-file-ignores"].items()
        if glob.startswith("src")
        for code in codes
    ]
    assert not [code for code in src if code in ("D", "D1") or code in missing]


def test_what_users_import_is_explained_where_they_look_for_it():
    import abreast

    for name in abreast.__all__:
        public = getattr(abreast, name)
        for one in get_args(public) or (public,):  # of a union, each of its types
            assert (getattr(one, "__origin__", one).__doc__ or "").strip(), name

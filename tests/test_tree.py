"""The check of the tree: small packages, one class of a name, no circles, no stray tasks."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/check_tree.py"


def checked(source):
    """The exit code and the lines of the check of a tree."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(source)], capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout.splitlines()


@pytest.fixture
def tree(tmp_path):
    """A small tree without a fault: two packages with a module each."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'"""Package {name}."""\n')
        text = f"class {name.title()}: pass\nclass _Same: pass\n"
        (tmp_path / name / "module.py").write_text(text)
    (tmp_path / "__init__.py").write_text('"""The package."""\n')
    return tmp_path


def test_a_tree_without_a_fault_passes(tree):
    assert checked(tree) == (0, [])


def test_a_class_name_that_is_defined_twice_is_named_with_both_places(tree):
    (tree / "two" / "module.py").write_text("class One: pass\n")
    code, lines = checked(tree)
    assert code == 1
    assert lines == ["the class One is defined in one/module.py and in two/module.py: rename one"]


def test_a_package_of_more_than_a_dozen_modules_is_a_fault_but_for_commands(tree):
    for name in ("one", "cli/commands"):
        (tree / name).mkdir(parents=True, exist_ok=True)
        for number in range(13):
            (tree / name / f"m{number}.py").touch()
    for name in ("cli", "cli/commands"):
        (tree / name / "__init__.py").write_text('"""Commands."""\n')
    assert checked(tree) == (1, ["one has 14 modules, more than 12: divide it"])


def test_a_package_without_a_sentence_or_without_an_init_is_a_fault(tree):
    (tree / "one" / "__init__.py").write_text("")
    (tree / "two" / "__init__.py").unlink()
    code, lines = checked(tree)
    assert code == 1
    assert lines == [
        "one/__init__.py does not say what the package is",
        "two has modules and no __init__.py",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "from {0}.two import module",
        "from {0}.two.module import Two",
        "import {0}.two.module",
        "if TYPE_CHECKING:\n    from {0}.two.module import Two",
        "def later():\n    from {0}.two.module import Two",
    ],
)
def test_a_circle_of_imports_is_a_fault_wherever_the_imports_stand(tree, line):
    (tree / "two" / "module.py").write_text(f"from {tree.name}.one.module import One\n")
    assert checked(tree) == (0, [])
    (tree / "one" / "module.py").write_text(f"{line.format(tree.name)}\nclass One: pass\n")
    code, lines = checked(tree)
    one, two = (f"{tree.name}.{name}.module" for name in ("one", "two"))
    assert code == 1
    assert lines in (
        [f"a circle of imports: {one} -> {two} -> {one}"],
        [f"a circle of imports: {two} -> {one} -> {two}"],
    )


@pytest.mark.parametrize(
    "call",
    [
        "asyncio.create_task(work())",
        "loop.create_task(work())",
        "asyncio.ensure_future(work())",
        "asyncio.gather(work())",
        "asyncio.TaskGroup()",
        "asyncio.Task(work())",
        "Task(work())",
        "asyncio.run_coroutine_threadsafe(work(), loop)",
    ],
)
def test_a_task_that_is_started_outside_of_the_scheduler_is_a_fault(tree, call):
    (tree / "one" / "module.py").write_text(f"x = 1\n{call}\n")
    starter = call.partition("(")[0].rpartition(".")[2]
    assert checked(tree) == (
        1,
        [f"one/module.py:2 calls {starter}: only run/map/attempts.py starts tasks"],
    )


def test_a_module_that_may_start_tasks_but_does_not_is_taken_off_the_list(tree):
    (tree / "sync.py").write_text("loop.create_task(work())\n")
    assert checked(tree) == (0, [])
    (tree / "sync.py").write_text("")
    assert checked(tree) == (1, ["sync.py starts no task any more: take it out of STARTS_TASKS"])

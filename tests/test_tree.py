"""The check of the tree: packages stay small and described, and a class name means one thing."""

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

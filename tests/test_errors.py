"""`abreast.errors` has every error that a user may catch, drawn as the tree that it is."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import abreast
from abreast import errors
from abreast.core.errors import AbreastError

SOURCE = Path(errors.__file__).parent
# Raised and caught by abreast itself.
INTERNAL = {"Interrupted", "ParentLost", "StepPaused"}


def drawn_tree():
    """Each error in the drawn tree and its parent."""
    parents, above = {}, {}
    drawing = re.search(r"^ *AbreastError\n.*?\n\n", errors.__doc__, re.MULTILINE | re.DOTALL)[0]
    for line in drawing.splitlines():
        if match := re.match(r"(?P<trunk> [ |`-]*)(?P<name>\w+)", line):
            depth = len(match["trunk"])
            parents[match["name"]] = next(
                (above[d] for d in sorted(above, reverse=True) if d < depth), None
            )
            above = {d: name for d, name in above.items() if d < depth} | {depth: match["name"]}
    return parents


def exported():
    return [getattr(errors, name) for name in errors.__all__]


def ours():
    return [one for one in exported() if issubclass(one, AbreastError)]


def defined():
    """The public errors beneath AbreastError that the library defines."""
    classes = {}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] not in ("cli", "testing"):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    classes[node.name] = {one.id for one in node.bases if isinstance(one, ast.Name)}
    found = {"AbreastError"}
    while more := {name for name, bases in classes.items() if bases & found} - found:
        found |= more
    return {name for name in found if not name.startswith("_")}


def test_every_error_of_the_library_can_be_imported_from_there():
    assert {one.__name__ for one in ours()} == defined() - INTERNAL
    assert abreast.errors is errors


def test_the_drawn_tree_is_the_tree_of_classes():
    assert drawn_tree() == {
        one.__name__: None if one is AbreastError else one.__bases__[0].__name__ for one in ours()
    }


def test_the_drawing_says_which_built_in_errors_they_also_are():
    said = dict(re.findall(r"(\w+) .*\(also an? (\w+)\)", errors.__doc__))
    assert said == {
        one.__name__: base.__name__
        for one in ours()
        for base in one.__bases__[1:]
        if base is not Exception
    }


def test_to_catch_an_error_imports_no_job():
    script = (
        "import sys, abreast; abreast.errors.BudgetSpent; "
        "sys.exit(any(name.startswith('abreast.jobs') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0

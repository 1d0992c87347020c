"""Patterns of paths, as people and git write them."""

import pytest

from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.decompose.set_aside import choose_files
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.patterns import PathPattern, is_pattern

FILES = Inventory.of(["a/b.md", "a/b.py", "c/b.py"])
BOTH = [
    ("*.js", ["a.js", "b/c.js"], ["a.jsx", "a.js2/b"]),
    ("a*b", ["ab", "x/axb"], ["ax/b"]),
    ("docs/", ["docs/a", "b/docs/c/d"], ["docs", "docs2/a"]),
    ("docs", ["docs", "docs/a", "b/docs/c"], ["docs2"]),
    ("b.py", ["b.py", "a/b.py"], ["a/ab.py"]),
    ("/docs", ["docs/a"], ["b/docs/c"]),
    ("src/**/a.c", ["src/a.c", "src/b/c/a.c"], ["a.c"]),
    ("**/x/a.c", ["x/a.c", "b/x/a.c"], ["a.c"]),
    ("src/**", ["src/a", "src/b/c"], ["src2/a"]),
    ("a?[bc][!d].py", ["aXbe.py"], ["a/be.py", "aXbd.py", "aXde.py"]),
    ("./a+b.(c)", ["a+b.(c)"], ["aab.c"]),
    (r"a\*", ["a*"], ["ab"]),
    ("späße*", ["späße.py", "x/späße/y"], ["spasse"]),
    ("a[b", ["a[b"], ["ab"]),
]


@pytest.mark.parametrize("git", [False, True])
@pytest.mark.parametrize(("pattern", "matched", "others"), BOTH)
def test_a_pattern_stands_for_names_paths_and_directories(pattern, matched, others, git):
    found = PathPattern.read(pattern, git=git)
    assert [path for path in [*matched, *others] if found.matches(path)] == matched


def test_a_star_goes_beyond_a_directory_but_not_in_the_files_of_git():
    assert PathPattern.read("src/*_test.py").matches("src/deep/a_test.py")
    assert not PathPattern.read("src/*_test.py", git=True).matches("src/deep/a_test.py")
    assert not PathPattern.read("src/*_test.py").matches("x/src/a_test.py")
    beneath = PathPattern.read("/a.py", beneath="sub", git=True)
    assert [beneath.matches(path) for path in ("sub/a.py", "a.py", "sub/b/a.py")] == [True, 0, 0]


def test_patterns_choose_files():
    def matches(pattern, path):
        return PathPattern.read(pattern).matches(path)

    def chosen(path, include, exclude):
        return path in choose_files(FILES, include=include, exclude=exclude).inventory.paths

    assert matches("*.py", "a/b.py")
    assert matches("docs", "x/docs/a.md")
    assert matches("docs/", "docs/deep/a.md")
    assert not matches("docs/", "docs")
    assert matches("src/*_test.py", "src/deep/a_test.py")
    assert not matches("b.py", "a/ab.py")
    assert chosen("a/b.py", ["a/"], ["*.md"])
    assert not chosen("c/b.py", ["a/"], [])
    assert not chosen("a/b.md", [], ["*.md"])


@pytest.mark.parametrize("text", ["", " ", "/", "!a", "[z-a]"])
def test_what_is_no_pattern_is_said(text):
    with pytest.raises(PlanInvalid, match="pattern"):
        PathPattern.read(text)


def test_a_text_without_wildcards_is_a_name():
    assert [is_pattern(text) for text in ("a/b.py", "a/*", "a?", "[ab]")] == [
        False,
        True,
        True,
        True,
    ]

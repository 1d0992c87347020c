"""Every public name is on one page of the API, with a docstring, types and an example that runs."""

import ast
import inspect
import re
import typing
from functools import cache

import pytest

import abreast
from abreast.run.calls.model import AskOptions
from tests.docs.pages import ROOT, blocks_of, project

PAGES = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs/api").glob("*.md"))
MODULES = ("checks", "errors", "strategies", "sync", "testing")
IN_EXAMPLES = ("abreast", "abreast.checks", "abreast.strategies")
KEYWORDS = {
    "theirs": ("Never",),  # refused, with the word that abreast has for it
    "settings": ("Unpack[StormSettings]",),  # `docs/storm.md` has them all
    "facts": ("Plain",),  # of an event of the user's own
}

_DIRECTIVE = re.compile(r"^\.\. auto(\w+):: ([\w.]+)$", re.MULTILINE)


def public_names():
    """The full names of all that is public, but for the modules."""
    found = [f"abreast.{name}" for name in abreast.__all__ if name not in MODULES]
    for module in MODULES:
        found += [f"abreast.{module}.{name}" for name in getattr(abreast, module).__all__]
    return found


def public(name):
    found = abreast
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


@cache
def documented(page):
    """The names that the directives of a page document."""
    names = []
    for kind, name in _DIRECTIVE.findall((ROOT / page).read_text("utf-8")):
        module = kind == "module"
        names += [f"{name}.{one}" for one in public(name).__all__] if module else [name]
    return names


def callables():
    """Public functions, and the public methods of public classes."""
    for name in public_names():
        found = public(name)
        if not inspect.isclass(found):
            if callable(found) and name != "abreast.Outcome":
                yield name, found
            continue
        if inspect.getdoc(found) and "Args:\n" in inspect.getdoc(found):
            yield name, found
        for word, method in inspect.getmembers(found, callable):
            ours = (getattr(method, "__module__", "") or "").startswith("abreast")
            if not word.startswith("_") and inspect.isroutine(method) and ours:
                yield f"{name}.{word}", method


@cache
def attributes_used(page):
    """The full names of abreast that the examples of a page name."""
    used = set()
    for block in blocks_of(page):
        if block.language == "python":
            used |= names_in(ast.parse(block.text))
    return used


def names_in(tree):
    """The full names that a program reaches from what it imports of abreast."""
    known, used = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {one.name: one.name for one in node.names if one.name == "abreast"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("abreast"):
            known |= {one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in ast.walk(tree):
        parts, inner = [], node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in known:
            used.add(".".join([known[inner.id], *parts]))
    return used


@pytest.mark.parametrize("page", PAGES)
def test_every_example_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    blocks = blocks_of(page)
    examples = [number for number, block in enumerate(blocks) if block.language == "python"]
    assert examples

    for number in examples:
        block, said = blocks[number : number + 2]
        monkeypatch.chdir(project(tmp_path / str(number)))
        exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})
        assert said.language == "text", block.place
        assert (block.place, capsys.readouterr().out) == (block.place, said.text)


def test_every_public_name_is_in_a_directive_of_one_page():
    found = [name for page in PAGES for name in documented(page)]

    assert sorted(found) == sorted(public_names())


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/api.md").read_text("utf-8")

    for page in PAGES:
        name = page.removeprefix("docs/").removesuffix(".md")
        assert f"\n{name}\n" in index
        assert f"]({name}.md)" in index


def test_every_public_name_has_a_docstring():
    for name in public_names():
        for one in typing.get_args(public(name)) or (public(name),):  # of a union, its types
            doc = inspect.getdoc(getattr(one, "__origin__", one)) or ""
            assert doc, name
            assert not doc.startswith(f"{name.rpartition('.')[2]}("), name  # as dataclasses do


@pytest.mark.parametrize("module", IN_EXAMPLES)
def test_every_public_name_is_in_an_example(module):
    used = {name for page in PAGES for name in attributes_used(page)}
    names = [f"{module}.{name}" for name in public(module).__all__]

    assert [
        name for name in names if not any(f"{one}.".startswith(f"{name}.") for one in used)
    ] == []


def test_every_keyword_has_a_name_and_a_type():
    for name, call in callables():
        hints = inspect.signature(call).parameters.values()
        for any_keyword in [one for one in hints if one.kind is inspect.Parameter.VAR_KEYWORD]:
            text = str(any_keyword.annotation)
            if any_keyword.name == "options":
                documented_keywords = inspect.getdoc(abreast.StrategyModel.ask)
                assert "AskOptions" in text, name
                assert all(
                    f"`{word}`" in documented_keywords for word in AskOptions.__annotations__
                )
            else:
                assert text in KEYWORDS[any_keyword.name], name


def test_every_parameter_has_a_type_and_stands_in_the_args_of_its_docstring():
    seen = 0
    for name, call in callables():
        lines = (inspect.getdoc(call) or "").partition("Args:\n")[2]
        for word, parameter in inspect.signature(call).parameters.items():
            if word == "self":
                continue
            assert parameter.annotation is not inspect.Parameter.empty, f"{name}: {word}"
            assert parameter.annotation != "Any", f"{name}: {word}"
            if lines:
                seen += 1
                assert re.search(rf"^ +\**{word}: ", lines, re.MULTILINE), f"{name}: {word}"
    assert seen > 100

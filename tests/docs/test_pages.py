"""What the pages say to type works when it is typed, and prints what they say."""

import ast
import asyncio
import re

import pytest

import abreast
from tests.docs.pages import ROOT, Block, blocks_of, differs, project, run

PAGES = (
    "docs/tutorial.md",
    "docs/tutorial-tickets.md",
    "docs/howto.md",
    "docs/models.md",
    "docs/sample.md",
    "docs/workflow.md",
    "docs/matrix.md",
    "docs/candidates.md",
    "docs/plan.md",
    "docs/coming-from/cleveragents.md",
    "docs/coming-from/codeflash.md",
    "docs/agents.md",
    "docs/laws.md",
    "docs/glossary.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_to_type_works_and_prints_what_it_says(page, tmp_path, forks):
    said = run(blocks_of(page), project(tmp_path / "reader"), forks)

    assert [
        text for block, out in said if block.expected is not None and (text := differs(block, out))
    ] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_is_a_file_that_is_run_or_runs_here(page, tmp_path, monkeypatch):
    blocks = blocks_of(page)
    typed = "".join(
        block.text
        for block in blocks
        if block.language == "sh" or (block.file and block.language == "yaml")
    )

    monkeypatch.chdir(tmp_path)
    for block in blocks:
        if block.language == "python" and block.file:
            assert block.file.removesuffix(".py") in typed, block.place
        elif block.language == "python":
            run_python(block)


def run_python(block):
    """Run a piece of a program, given what it leaves to the reader's imagination."""

    async def ask(question):
        return f"reply to {question}"

    given = {
        "abreast": abreast,
        "ask": ask,
        "questions": ["a", "b"],
        "fetch": len,
        "urls": ["one", "three"],
    }
    code = compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, given)
    if asyncio.iscoroutine(result):
        asyncio.run(result)


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_what_a_page_beside_the_code_links_to_is_there(page):
    linked = re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text("utf-8"))

    assert [name for name in linked if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", (ROOT / "docs" / page).read_text("utf-8"))

    assert [
        name for file, name in named if f"def {name}(" not in (ROOT / file).read_text("utf-8")
    ] == []


@pytest.mark.parametrize(
    ("expected", "said", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "b\n", False),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("...\n", "", True),
        ("took  0.1 s\n", "took  12.25 s\n", True),
        ("took  0.1 s\n", "took  0.1 min\n", False),
        ('{"index":1,"seconds":0.5}\n', '{"index":1,"seconds":7e-05}\n', True),
        ('{"index":1,"seconds":0.5}\n', '{"index":2,"seconds":0.5}\n', False),
        ("2 done, 1 failed in 0.1 s (map-2)\n", "2 done, 1 failed in 9.1 s (map-2)\n", True),
        ("2 done, 1 failed in 0.1 s (map-2)\n", "1 done, 1 failed in 0.1 s (map-2)\n", False),
    ],
)
def test_what_a_page_says_is_compared_line_by_line(expected, said, same):
    assert (differs(Block("page", 1, "", "sh", "", expected), said) == "") is same


def test_a_block_that_fails_is_named(tmp_path, forks):
    blocks = [Block("page", 3, "", "sh", "true\n"), Block("page", 7, "", "sh", "false\ntrue\n")]

    with pytest.raises(pytest.fail.Exception, match="page:7: exit code 1"):
        run(blocks, project(tmp_path / "reader"), forks)


def test_the_page_about_stability_names_every_internal_module_that_pages_import():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines()]
    public = {f"abreast.{name}" for name in [*abreast.__all__, "testing"]}
    imported = {found[1] for line in lines if (found := _IMPORT.match(line))} - public
    stability = (ROOT / "docs/stability.md").read_text("utf-8")

    assert imported
    assert [name for name in imported if f"`{name}`" not in stability] == []
    named = re.search(r"imported on these pages.*?\. They may", stability, re.DOTALL)[0]
    assert set(re.findall(r"`(abreast\.[\w.]+)`", named)) == imported


_IMPORT = re.compile(r"(?:from|import) (abreast\.[\w.]+)")

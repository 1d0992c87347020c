"""What the pages say to type works when it is typed, and prints what they say."""

import ast
import asyncio
import re

import pytest

import abreast
from tests.docs.pages import ROOT, blocks_of, differs, project, run

PAGES = ("README.md", "docs/tutorial.md", "docs/howto.md", "docs/agents.md", "docs/laws.md", "docs/glossary.md")
MOST_LINES = 150


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_to_type_works_and_prints_what_it_says(page, tmp_path):
    said = run(blocks_of(page), project(tmp_path / "reader"))

    assert [text for block, out in said if block.expected is not None and (text := differs(block, out))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_is_a_file_that_is_run_or_runs_here(page, tmp_path, monkeypatch):
    blocks = blocks_of(page)
    typed = "".join(block.text for block in blocks if block.language == "sh")

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

    given = {"abreast": abreast, "ask": ask, "questions": ["a", "b"], "fetch": len, "urls": ["one", "three"]}
    code = compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, given)
    if asyncio.iscoroutine(result):
        asyncio.run(result)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_what_a_page_beside_the_code_links_to_is_there(page):
    linked = re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text("utf-8"))

    assert [name for name in linked if not (ROOT / name).exists()] == []

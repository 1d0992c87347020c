"""What the pages say to type works when it is typed, and prints what they say."""

import ast
import asyncio
import re
import subprocess
import sys

import pytest

import abreast
from tests.docs.pages import PATIENCE, ROOT, Block, blocks_of, differs, environment, project, run

PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/howto.md",
    "docs/models.md",
    "docs/sample.md",
    "docs/workflow.md",
    "docs/matrix.md",
    "docs/candidates.md",
    "docs/plan.md",
    "docs/coming-from/cleveragents.md",
    "docs/agents.md",
    "docs/laws.md",
    "docs/glossary.md",
)
MOST_LINES = 180


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


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_what_a_page_beside_the_code_links_to_is_there(page):
    linked = re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / page).read_text("utf-8"))

    assert [name for name in linked if not (ROOT / name).exists()] == []


def test_the_readme_shows_what_the_crash_demo_prints(tmp_path):
    shown = next(
        block.text
        for block in blocks_of("README.md")
        if block.text.startswith("$ abreast demo crash")
    )
    ended = subprocess.run(
        [sys.executable, "-m", "abreast", "demo", "crash"],
        cwd=project(tmp_path / "reader"),
        env=environment(tmp_path / "reader"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )

    wanted = shown.splitlines()[1:]

    assert [without_numbers(line) for line in ended.stdout.splitlines()[: len(wanted)]] == [
        without_numbers(line) for line in wanted
    ]


def without_numbers(line):
    line = re.sub(r"(?<=ran again).*", "", line)  # how many were in flight is a matter of luck
    return re.sub(r"\b[0-9a-f]{16}\b|(?<!-)\b\d+\b(?! recorded items)", "N", line)


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

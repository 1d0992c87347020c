"""Their examples and ours, side by side: both run, and where one output is shown, both print it."""

import re
import shutil

import pytest

from tests.docs.pages import ROOT, blocks_of, differs, project, run

PARALLEL = "docs/coming-from/gnu-parallel.md"
_TOOL = re.compile(r"\b(xargs|parallel) ")


def examples():
    """For each heading of the page: the tool, their block and ours."""
    blocks = [block for block in blocks_of(PARALLEL) if block.language == "sh"]
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))
    assert all(theirs.heading == ours.heading for theirs, ours in pairs)
    return [pytest.param(_TOOL.search(theirs.text)[1], theirs, ours, id=theirs.heading) for theirs, ours in pairs]


@pytest.mark.parametrize(("tool", "theirs", "ours"), examples())
def test_ours_prints_what_the_page_says(tool, theirs, ours, tmp_path):
    assert "abreast" not in theirs.text
    assert ours.expected

    ((_, said),) = run([ours], project(tmp_path / "ours"))

    assert differs(ours, said) == ""


@pytest.mark.parametrize(("tool", "theirs", "ours"), examples())
def test_theirs_prints_what_the_page_says(tool, theirs, ours, tmp_path):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed, so its half of {theirs.place} was not run")
    (tmp_path / "theirs").mkdir()

    ((_, said),) = run([theirs], tmp_path / "theirs")

    assert differs(theirs if theirs.expected else ours, said) == ""


def test_every_flag_of_ours_that_the_page_names_is_one():
    reference = (ROOT / "docs" / "cli.md").read_text("utf-8")
    rows = [line.split("|")[2] for line in (ROOT / PARALLEL).read_text("utf-8").splitlines() if line.startswith("| `")]
    named = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row.replace(r"\|", ""))}

    assert named
    assert [flag for flag in named if f"{flag} " not in reference and f"{flag}," not in reference] == []

"""The README: everything in it can be pasted into an empty directory, and prints what it says."""

import re
import tomllib

from benchmarks.readme_example import count_right, readme_wording, reviews
from tests.docs.pages import ROOT, blocks_of, differs, run

PAGE = "README.md"
MOST_LINES = 180


def test_every_block_works_in_an_empty_directory_and_prints_what_it_says(embedded, tmp_path, forks):
    (tmp_path / "reader").mkdir()

    said = run(blocks_of(PAGE), tmp_path / "reader", forks)

    assert [text for block, out in said if (text := differs(block, out))] == []


def test_every_block_is_to_be_pasted_and_says_what_it_prints():
    install, *pasted = blocks_of(PAGE)

    assert (install.heading, install.language) == ("Install", "console")
    assert [block.place for block in pasted if block.language != "sh" or not block.expected] == []


def test_what_install_names_are_extras():
    install, *_ = blocks_of(PAGE)
    (named,) = re.findall(r"pip install '\.\[([\w,]+)\]'", install.text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    assert set(named.split(",")) <= set(project["optional-dependencies"])


def test_the_small_model_gets_the_question_about_reviews_right(embedded):
    asked = reviews()[4:6]  # beside those that are in the README

    assert count_right(*readme_wording(), asked) == len(asked)


def test_it_is_short():
    assert len((ROOT / PAGE).read_text("utf-8").splitlines()) <= MOST_LINES

"""The reference of the matrix says all that there is.

Keys, strategies, scores, controls, columns, exit codes.
"""

import re

import pytest

from abreast.cli import errors
from abreast.jobs.matrix.design import read_study
from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring.scores import KINDS
from abreast.jobs.matrix.spec import CONTROLS
from abreast.jobs.matrix.tools import StrategyModel
from tests.docs.pages import ROOT, blocks_of

PAGE = "docs/matrix.md"


@pytest.fixture
def page():
    return (ROOT / PAGE).read_text("utf-8")


def part(page, heading):
    return re.split(r"\n#+ (?=[A-Z])", page.partition(f"# {heading}\n")[2])[0]


def first_column(text):
    return " ".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `"))


def test_it_has_every_key_of_the_file_and_no_other(page):
    assert re.findall(r"`(\w+)`", first_column(part(page, "The file"))) != []
    assert set(re.findall(r"`(\w+)`", first_column(part(page, "The file")))) == set(
        read_study._STUDY
    )


def test_it_has_every_kind_of_strategy_with_its_keys(page):
    table = part(page, "Strategies")
    assert re.findall(r"`(\w+)`", first_column(table)) == list(read_study._STRATEGIES)
    assert [word for word in read_study._CALL_OPTIONS if f"`{word}`" not in table] == []


def test_it_has_what_a_function_gets(page):
    said = part(page, "Functions")
    assert [
        word
        for word in ("ask", "reply", "name")
        if not hasattr(StrategyModel, word) or f"model.{word}" not in said
    ] == []


def test_it_has_every_score_and_every_control(page):
    scores = first_column(part(page, "Scores"))
    assert [
        kind for kind in KINDS if f"`{kind}`" not in scores and f"`{{{kind}:" not in scores
    ] == []
    assert [name for name in CONTROLS if f"`{name}`" not in part(page, "Controls")] == []


def test_it_has_every_column_of_a_row(page):
    assert sorted(re.findall(r"`(\w+)`", first_column(part(page, "A row")))) == sorted(
        Row.__dataclass_fields__
    )


def test_its_exit_codes_are_those_that_there_are(page):
    codes = re.findall(r"(?m)^\| (\d+) \|", part(page, "Failures"))
    known = (errors.DONE, errors.FAILED, errors.USAGE, errors.SPENT, errors.INTERRUPTED)
    assert [int(code) for code in codes] == list(known)


def test_every_file_of_yaml_is_one_that_is_run():
    blocks = blocks_of(PAGE)
    typed = "".join(block.text for block in blocks if block.language == "sh")
    assert [
        block.place
        for block in blocks
        if block.language == "yaml" and (block.file or "?") not in typed
    ] == []


def test_what_it_says_of_the_statistics_is_what_the_report_says(page):
    from abreast.jobs.matrix.report.findings import METHODS

    said, methods = part(page, "The report"), " ".join(METHODS)
    words = (
        "Wilson",
        "Student's t",
        "McNemar's exact test",
        "Wilcoxon's signed ranks",
        "rank-biserial",
        "Holm",
    )
    assert [word for word in words if word not in said or word not in methods] == []

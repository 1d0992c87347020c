"""Means against what is asked of them: read, compared, and written for CI servers."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.matrix.report.verdict import (
    Threshold,
    junit,
    read_threshold,
    summary,
    verdicts,
)
from tests.jobs.matrix.made_rows import row

ROWS = [
    row(strategy="asked", given="a", score=1.0, output="yes"),
    row(strategy="asked", given="b", score=0.0, output="no"),
    row(strategy="told", given="a", score=1.0),
    row(
        strategy="told", given="b", state="failed", error="Timeout after 3 s", error_type="Timeout"
    ),
]


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        ("0.8", Threshold(0.8)),
        ("exact=1", Threshold(1.0, "exact")),
        ("told:exact=.5", Threshold(0.5, "exact", "told")),
        ("a=b=0.5", Threshold(0.5, "a=b")),
    ],
)
def test_a_threshold_is_for_all_or_for_what_it_names(text, threshold):
    assert read_threshold(text, ["a=b", "exact"], ["asked", "told"]) == threshold


@pytest.mark.parametrize("text", ["", "x", "exact=", "exact=y", "near=1", "told:near=1", "nan"])
def test_what_is_no_threshold_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        read_threshold(text, ["exact"], ["asked", "told"])


def test_a_failed_cell_counts_as_0_and_an_arm_that_cannot_run_has_no_mean():
    found = verdicts(ROWS, [Threshold(0.5)], {("m", "lost"): "no key"})

    assert [(one.arm.strategy, one.mean, one.passes) for one in found] == [
        ("asked", 0.5, True),
        ("lost", None, False),
        ("told", 0.5, True),
    ]
    assert "no key" in str(found[1])


def test_of_one_strategy_only_its_mean_counts():
    found = verdicts(ROWS, [Threshold(0.6, "exact", "told")], {})

    assert [(one.arm.strategy, one.passes) for one in found] == [("told", False)]


def test_cells_that_failed_are_errors_and_means_that_are_too_small_are_failures():
    root = ET.fromstring(junit("study", ROWS, verdicts(ROWS, [Threshold(0.6)], {})))

    suites = {suite.get("name"): suite for suite in root}
    counts = {
        name: [suite.get(word) for word in ("tests", "errors", "failures")]
        for name, suite in suites.items()
    }
    assert counts == {
        "m · asked": ["2", "0", "0"],
        "m · told": ["2", "1", "0"],
        "thresholds": ["2", "0", "2"],
    }
    assert suites["m · told"].find(".//error").get("message") == "Timeout after 3 s"


def test_a_score_that_could_not_be_given_is_an_error():
    rows = [row(score=None, score_errors={"exact": "no truth"})]

    error = ET.fromstring(junit("study", rows, [])).find(".//error")
    assert (error.get("type"), error.get("message")) == ("score exact", "no truth")


@given(st.text())
def test_any_reply_makes_xml_that_can_be_read(text):
    rows = [row(given=text, output=text)]

    assert ET.fromstring(junit(text, rows, [])).find(".//system-out") is not None


def test_the_summary_has_a_line_for_each_arm_and_says_what_is_under():
    text = summary("study", ROWS, verdicts(ROWS, [Threshold(0.6, "exact", "asked")], {}))

    assert "> **Under:** m · asked: the mean of exact is 0.500, less than 0.6" in text
    assert "| m · told | 2 | 1 | 0.500 |" in text
    reached = summary("study", ROWS, verdicts(ROWS, [Threshold(0.5)], {}))
    assert "**Under" not in reached
    assert "All 2 means are large enough." in reached

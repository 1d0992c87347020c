"""The text of the live line of a study, without a terminal and without waiting."""

import pytest

from abreast.jobs.matrix.call_notes import LaneCount
from abreast.jobs.matrix.job import LaneTally, MatrixTally
from abreast.jobs.matrix.view import MatrixLive


def said(elapsed, tallies, cells, counts=None, width=4):
    live = MatrixLive(cells, dict.fromkeys(cells, width))
    live.watch(MatrixTally(tallies), counts or {})
    return "  ".join(text for text, _ in live.parts(elapsed) if text)


def test_it_says_cells_lanes_429s_cost_and_when_it_ends():
    tallies = {
        "a": LaneTally(done=8, failed=2, fresh=10, usd=0.5),
        "b": LaneTally(done=40, fresh=40, usd=0.25),
    }
    counts = {"a": LaneCount(now=4, throttled=3), "b": LaneCount(now=1)}
    # a: 10 cells in 20 s, and 20 to come at 0.05 usd each; b: 40 in 20 s, 20 to come
    assert (
        said(20.0, tallies, {"a": 30, "b": 60}, counts)
        == "50/90 cells  2 failed  a 4/4  b 1/4  3 x 429  0.75 of about 1.88 usd  40 s left (a)"
    )


def test_a_fast_lane_says_nothing_about_a_slow_one():
    tallies = {"fast": LaneTally(done=1000, fresh=1000), "slow": LaneTally(done=1, fresh=1)}
    assert said(30.0, tallies, {"fast": 1000, "slow": 11}) == "1001/1011 cells  5 min left (slow)"


def test_cells_that_were_recorded_already_make_nobody_faster():
    tallies = {"a": LaneTally(done=905, fresh=5)}
    assert said(10.0, tallies, {"a": 1000}) == "905/1000 cells  3 min left (a)"


def test_before_anything_was_asked_nobody_knows_when_it_ends():
    assert said(1.0, {"a": LaneTally(done=5)}, {"a": 10}) == "5/10 cells"


@pytest.mark.parametrize(
    ("left", "words"), [(89, "89 s"), (90, "2 min"), (3000, "50 min"), (10800, "3.0 h")]
)
def test_times_are_in_the_unit_that_fits(left, words):
    ended = {"a": LaneTally(done=1, fresh=1)}
    assert said(1.0, ended, {"a": 1 + left}).endswith(f"{words} left (a)")

"""The text of the live line of a study, without a terminal and without waiting."""

import pytest

from abreast.cli.terminal.matrix_line import MatrixLine
from abreast.jobs.matrix.call_notes import LaneCount
from abreast.jobs.matrix.job import LaneTally, MatrixTally


def line(tallies, cells, counts=None, width=4):
    made = MatrixLine(cells, dict.fromkeys(cells, width), now=100.0)
    made.watch(MatrixTally(tallies), counts or {})
    return made


def test_it_says_cells_lanes_429s_cost_and_when_it_ends():
    tallies = {
        "a": LaneTally(done=8, failed=2, fresh=10, usd=0.5),
        "b": LaneTally(done=40, fresh=40, usd=0.25),
    }
    counts = {"a": LaneCount(now=4, throttled=3), "b": LaneCount(now=1)}
    said = line(tallies, {"a": 30, "b": 60}, counts).text(120.0)
    # a: 10 cells in 20 s, and 20 to come at 0.05 usd each; b: 40 in 20 s, 20 to come
    assert (
        said
        == "50/90 cells  2 failed  a 4/4  b 1/4  3 x 429  0.75 of about 1.88 usd  40 s left (a)"
    )


def test_a_fast_lane_says_nothing_about_a_slow_one():
    tallies = {"fast": LaneTally(done=1000, fresh=1000), "slow": LaneTally(done=1, fresh=1)}
    assert (
        line(tallies, {"fast": 1000, "slow": 11})
        .text(130.0)
        .endswith("1001/1011 cells  5 min left (slow)")
    )


def test_cells_that_were_recorded_already_make_nobody_faster():
    tallies = {"a": LaneTally(done=905, fresh=5)}
    assert line(tallies, {"a": 1000}).text(110.0) == "905/1000 cells  3 min left (a)"


def test_before_anything_was_asked_nobody_knows_when_it_ends():
    assert line({"a": LaneTally(done=5)}, {"a": 10}).text(101.0) == "5/10 cells"


@pytest.mark.parametrize(
    ("left", "said"), [(89, "89 s"), (90, "2 min"), (3000, "50 min"), (10800, "3.0 h")]
)
def test_times_are_in_the_unit_that_fits(left, said):
    assert (
        line({"a": LaneTally(done=1, fresh=1)}, {"a": 1 + left})
        .text(101.0)
        .endswith(f"{said} left (a)")
    )

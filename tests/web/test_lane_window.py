"""The lanes of a period, bar by bar and by sorted columns: the same picture."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.views.lane_rows import RUNNING, STATES, LaneBar
from abreast.views.run_view import AttemptLane, RunView
from abreast.web.lane_window import window
from tests.properties import tried

BINS = 240
# Multiples of 1/64, so that sums are exact.
GAPS = st.integers(0, 40).map(lambda parts: parts / 64)
BARS = st.lists(st.tuples(GAPS, GAPS, GAPS, st.sampled_from(STATES[1:])), max_size=60)


def lane_of(rows, running=None):
    """A view with one lane: for each bar the gap before it, how long it ran and waited, its end."""
    view = RunView()
    lane = view.lanes["lane"] = AttemptLane("lane", int)
    for number, bars in enumerate(rows):
        row = lane._make_row()
        lane.rows.append(row)
        at = 0.0
        for place, (gap, took, waited, state) in enumerate(bars):
            start = at + gap
            at = start + took
            since = max(0.0, start - waited)
            row.keep(LaneBar(str(1000 * number + place), state, since, start, at))
        if running is not None and number == 0:
            row.begin(LaneBar("7", RUNNING, at, at + running, at + running))
        view.now = max(view.now, at + 1.0)
    return view


def one_by_one(row, begin, finish, now, grain):
    """The bars of a row, each looked at: short neighbours become one in the worst state."""
    found, last_since, last_end = [], None, 0.0
    for waited, start, end, state, item in row.between(begin, finish, now):
        since = waited if not found and last_since is None else max(waited, last_end)
        last_end = end
        if since > finish:
            continue
        if last_since is not None and end - last_since < grain:
            found[-1][2:5] = [end, max(found[-1][3], state), found[-1][4] + 1]
        else:
            found.append([since, start, end, state, 1, item])
            last_since = since
    return [round(part, 4) for bar in found for part in bar]


def mean_open(intervals, begin, finish):
    """The average number of open intervals in each bin."""
    size = (finish - begin) / BINS
    edges = [begin + place * size for place in range(BINS + 1)]
    return [
        sum(max(0.0, min(end, high) - max(start, low)) for start, end in intervals) / size
        for low, high in pairwise(edges)
    ]


@tried(60)
@given(
    st.lists(BARS, min_size=1, max_size=3),
    st.none() | GAPS,
    st.integers(0, 1000),
    st.integers(1, 1500),
)
def test_bars_found_by_their_sorted_ends_are_those_found_one_by_one(rows, running, first, length):
    view = lane_of(rows, running)
    begin, end = first / 64, (first + length) / 64
    # As many bars as there are pixels, so that some are merged.
    columns = 50
    lanes = window(view, view.now, begin=begin, end=end, columns=columns)["lanes"]
    for row, drawn in zip(view.lanes["lane"].rows, lanes[0]["rows"], strict=True):
        assert drawn == one_by_one(row, begin, end, view.now, (end - begin) / columns)


@pytest.mark.parametrize("bars", [60, 250])
@pytest.mark.parametrize(("first", "last"), [(0.0, 1.0), (0.02, 0.04)])
def test_what_was_in_flight_is_the_same_however_it_is_summed(bars, first, last):
    parts = [(n % 3 / 8, n % 5 / 8 + 1 / 64, n % 7 / 4, "done") for n in range(bars)]
    view = lane_of([parts, parts[::-1]], running=0.5)
    begin, end = first * view.now, last * view.now
    [lane] = window(view, view.now, begin=begin, end=end, columns=400)["lanes"]
    seen = [bar for row in view.lanes["lane"].rows for bar in row.between(0.0, 1e9, view.now)]
    ran = mean_open([(start, stop) for _, start, stop, _, _ in seen], begin, end)
    waited = mean_open([(since, start) for since, start, *_ in seen], begin, end)
    assert lane["busy"] == pytest.approx(ran, abs=0.006)
    assert lane["waits"] == pytest.approx(waited, abs=0.006)

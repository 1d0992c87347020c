"""The part of the lanes that a page shows, at the resolution of the screen.

Neighbouring bars that would share a pixel are merged into one, so that the answer's size is bounded
however many attempts there are.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from abreast.views.lane_rows import STATES
from abreast.views.run_view import CALLS, AttemptLane, AttemptRow, RunView

_MAX_BARS: Final = 16_000  # bars in one window; in the worst case there are twice as many
_MAX_ROWS: Final = 200  # rows of a lane; where more are in use, neighbours share one
_BINS: Final = 240  # points of the curve of what was in flight
_MAX_COLUMNS: Final = 4000  # of pixels

Flat = list[float | int]


class _Level:
    """The average number of open intervals in each bin of a period.

    Adding an interval takes constant time, however long it is.
    """

    def __init__(self, begin: float, end: float) -> None:
        self._begin = begin
        self._size = (end - begin) / _BINS
        self._parts = [0.0] * (_BINS + 2)  # intervals that begin or end within a bin
        self._steps = [0] * (_BINS + 2)  # changes of the number that last through whole bins

    def add(self, start: float, end: float) -> None:
        first, last = (start - self._begin) / self._size, (end - self._begin) / self._size
        first, last = max(0.0, min(first, _BINS)), max(0.0, min(last, _BINS))
        at, to = int(first), int(last)
        if at == to:
            self._parts[at] += last - first
            return
        self._parts[at] += at + 1 - first
        self._parts[to] += last - to
        self._steps[at + 1] += 1
        self._steps[to] -= 1

    def add_all(self, starts: "array[float]", ends: "array[float]") -> None:
        """Add intervals by their sorted starts and ends; all but 240 steps are C's."""
        finish = self._begin
        started, ended = bisect_left(starts, finish), bisect_left(ends, finish)
        for place in range(_BINS):
            finish = self._begin + (place + 1) * self._size
            open_before = started - ended
            to_start = bisect_left(starts, finish, started)
            to_end = bisect_left(ends, finish, ended)
            within = (to_start - started - to_end + ended) * finish
            within += sum(ends[ended:to_end]) - sum(starts[started:to_start])
            self._parts[place] += open_before + within / self._size
            started, ended = to_start, to_end

    def means(self) -> list[float]:
        through, means = 0, []
        for part, step in zip(self._parts[:_BINS], self._steps, strict=False):
            through += step
            means.append(round(through + part, 2))
        return means


def window(
    view: RunView, now: float, *, begin: float, end: float, columns: int
) -> dict[str, object]:
    """All lanes from `begin` to `end`, for a width of `columns` pixels.

    Each row is a flat list: for every bar `since, start, end, state, count, item`.
    """
    end = max(end, begin + 1e-6)
    columns = max(50, min(columns, _MAX_COLUMNS))
    shown = [
        lane for lane in view.lanes.values() if lane.rows or lane.waiting or lane.limits.decisions
    ]
    rows = sum(len(lane.rows) for lane in shown)
    grain = (end - begin) / max(1, min(columns, _MAX_BARS // max(1, rows)))
    return {
        "begin": begin,
        "end": end,
        "now": round(now, 4),
        "states": STATES,
        "bins": _BINS,
        "seams": [seam for seam in view.seams if begin <= seam <= end],
        "lanes": [_lane(lane, view, now, (begin, end), grain) for lane in shown],
    }


def _lane(
    lane: AttemptLane, view: RunView, now: float, period: tuple[float, float], grain: float
) -> dict[str, object]:
    begin, end = period
    share = -(-len(lane.rows) // _MAX_ROWS) or 1
    busy, waits = _Level(begin, end), _Level(begin, end)
    for since in lane.waiting.values():
        waits.add(since, now)
    rows: list[Flat] = []
    for at, row in enumerate(lane.rows):
        if at % share == 0:
            rows.append([])
        _merge(rows[-1], row, period, now, grain)
        _count(row, begin, now, busy, waits)
    calls = lane.name.startswith(CALLS)
    decisions = [one for one in lane.limits.decisions if begin <= one.at <= end][-500:]
    return {
        "name": lane.name,
        "nested": _is_nested(lane, view),
        "calls": calls,
        "rows": rows,
        "share": share,
        "running": len(lane.running),
        "waiting": len(lane.waiting),
        "counts": lane.counts,
        "busy": busy.means(),
        "waits": waits.means(),
        "width": 0 if calls else view.width,
        "limits": _limits(lane, begin, end),
        "decisions": [{"at": round(one.at, 4), **one.data} for one in decisions],
    }


def _count(row: AttemptRow, begin: float, now: float, busy: _Level, waits: _Level) -> None:
    """Add the bars of a row that end after `begin` to what was in flight, and to what waited."""
    first = bisect_left(row.end, begin)
    if len(row) - first < _BINS:
        for start, end in zip(row.start[first:], row.end[first:], strict=True):
            busy.add(start, end)
        for since, start in zip(row.since[first:], row.start[first:], strict=True):
            waits.add(since, start)
    else:
        busy.add_all(row.start, row.end)
        waits.add_all(row.waits(), row.start)
    if (running := row.running) is not None:
        busy.add(running.start, now)
        waits.add(running.since, running.start)


def _merge(
    flat: Flat, row: AttemptRow, period: tuple[float, float], now: float, grain: float
) -> None:
    """Append the bars of a row.

    Neighbours that together are shorter than a pixel become one, in the worst of their states. They
    are found by their ends, which are sorted: a row of 20,000 bars takes as many steps as it has
    pixels.
    """
    begin, finish = period
    ends = row.end
    at = bisect_left(ends, begin)
    # Bars after the first that ends after the period begin after it.
    stop = min(len(ends), bisect_right(ends, finish) + 1)
    last_since = last_end = -1e18
    while at < stop:
        # While another bar is in this row, waiting is not shown here.
        last_since = since = max(row.since[at], last_end)
        if since > finish:
            break
        after = bisect_left(ends, since + grain, at + 1, stop)
        if after == stop > at + 1 and row.since[stop - 1] > finish:
            after -= 1
        last_end = ends[after - 1]
        flat += (round(since, 4), round(row.start[at], 4), round(last_end, 4))
        flat += (max(row.state[at:after]), after - at, row.item[at])
        at = after
    for waited, start, end, state, item in row.between(math.inf, finish, now):  # the running one
        since = max(waited, last_end)
        if since > finish:
            continue
        if end - last_since < grain and flat:
            flat[-4] = round(end, 4)
            flat[-3] = max(flat[-3], state)
            flat[-2] += 1
        else:
            flat += (round(since, 4), round(start, 4), round(end, 4), state, 1, item)


def _is_nested(lane: AttemptLane, view: RunView) -> bool:
    """Whether the items of a lane are beneath other items, by the first that is known."""
    if lane.name.startswith(CALLS):
        return False
    running = (row.running.path for row in lane.rows if row.running is not None)
    places = [next((row.item[0] for row in lane.rows if len(row)), -1)]
    places.extend(view.items.find(path) for path in running)
    nested = view.items.nested()
    known = [place for place in places if 0 <= place < len(nested)]
    return bool(known) and bool(nested[known[0]])


def _limits(lane: AttemptLane, begin: float, end: float) -> list[tuple[float, float]]:
    """The limit at `begin`, and its changes until `end`; of several within a bin, the last."""
    before = [limit for limit in lane.limits.steps if limit[0] <= begin]
    within = [limit for limit in lane.limits.steps if begin < limit[0] <= end]
    grain = (end - begin) / (4 * _BINS)
    kept: list[tuple[float, float]] = [(begin, before[-1][1])] if before else []
    for at, value in within:
        if kept and at - kept[-1][0] < grain:
            kept.pop()
        kept.append((round(at, 4), value))
    return kept


def spending(view: RunView, now: float, points: int = 300) -> dict[str, object]:
    """Cumulative cost and tokens over time."""
    at = view.spent["at"]
    size = max(now, 1e-6) / points
    sums = {name: [0.0] * (points + 1) for name in ("usd", "input", "output")}
    for place, when in enumerate(at):
        column = min(points, int(when / size) + 1)
        for name, values in sums.items():
            values[column] += view.spent[name][place]
    for values in sums.values():
        for column in range(1, points + 1):
            values[column] = round(values[column] + values[column - 1], 9)
    return {"at": [round(size * column, 3) for column in range(points + 1)], **sums}

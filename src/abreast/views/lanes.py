"""The lanes of a run for the terminal: rows of bars, counts and rates, in a window of time.

An event takes constant time however long the run is, and only what can still be seen is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final

from abreast.core.events import Event
from abreast.views.lane_fold import LaneFold
from abreast.views.lane_rows import (
    DONE,
    RETRIED,
    SEVERITY,
    SPECULATIVE,
    Lane,
    LaneBar,
    LaneLevel,
    LaneRow,
    TimeWindow,
)
from abreast.views.progress import OutcomeCounts
from abreast.views.served import ServedSums

_GRAINS: Final = 500  # per window: bars shorter than one grain are merged
_MAX_KEPT_ROWS: Final = 256  # rows of a lane that keep their bars: no drawing is higher
_RATE_PERIOD: Final = 10  # seconds over which the rate is measured


@dataclass(frozen=True, slots=True)
class LaneCounts:
    """How many items are in each state.

    `retried` counts attempts, `speculative` the items that ran past their map's stop.
    """

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    speculative: int = 0
    running: int = 0
    waiting: int = 0

    def __add__(self, other: LaneCounts) -> LaneCounts:
        return LaneCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class ChartRow(LaneRow):
    """A row whose bars are merged if they are too short, and dropped if they are too old."""

    def __init__(self, window: TimeWindow) -> None:
        super().__init__()
        self.bars: deque[LaneBar] = deque()
        self._window = window
        self._turns = 0

    def __len__(self) -> int:
        return len(self.bars)

    def begin(self, bar: LaneBar) -> None:
        """Start an attempt; its waiting is shown as far as this row was free then."""
        start = max(bar.start, self.free_since)
        self.running = bar._replace(
            since=max(bar.since, self.free_since), start=start, end=start, nth=self._turns
        )
        self._turns += 1

    def keep(self, bar: LaneBar) -> None:
        """Add a bar that has ended, or merge it with the last one."""
        last = self.bars[-1] if self.bars else None
        start = max(bar.start, self.free_since)
        bar = bar._replace(since=min(start, max(bar.since, self.free_since)), start=start)
        if last is not None and bar.end - last.since < self._window.grain:
            bar = max(last, bar, key=lambda either: SEVERITY[either.state])._replace(
                since=last.since,
                start=last.start,
                end=bar.end,
                attempts=last.attempts + bar.attempts,
            )
            self.bars.pop()
        self.bars.append(bar)
        self.free_since = bar.end
        while self.bars[0].end < self._window.begin(bar.end):
            self.bars.popleft()

    def seen_since(self, begin: float) -> bool:
        """Whether anything ran here since `begin`."""
        return self.running is not None or (bool(self.bars) and self.bars[-1].end >= begin)

    def seen(self, begin: float, now: float) -> Iterator[LaneBar]:
        """The bars since `begin`, the running one as if it ended `now`."""
        yield from (bar for bar in self.bars if bar.end >= begin)
        if self.running is not None:
            yield self.running._replace(end=max(now, self.running.start))


class ChartLane(Lane[ChartRow]):
    """A lane with its counts, and how many items waited over time."""

    def __init__(self, name: str, window: TimeWindow) -> None:
        super().__init__(name, lambda: ChartRow(window))
        self.ended: Counter[str] = Counter()
        self.waited = LaneLevel(window)
        self._peak = 0

    @property
    def counts(self) -> LaneCounts:
        """How many items are in each state."""
        return LaneCounts(running=len(self.running), waiting=len(self.waiting), **self.ended)

    @property
    def peak(self) -> int:
        """How many items executed at once, at most."""
        return max(self._peak, len(self.rows))

    def wait(self, path: str, now: float) -> None:
        """Let an item wait."""
        super().wait(path, now)
        self.waited.change(1, now)

    def stop_waiting(self, path: str, now: float) -> float:
        """End an item's waiting; return the time since when it waited."""
        self.waited.change(-1, now)
        return super().stop_waiting(path, now)

    def _keep(self, row: int, bar: LaneBar) -> None:
        self._peak = max(self._peak, row + 1)
        if row < _MAX_KEPT_ROWS:
            super()._keep(row, bar._replace(state=DONE) if bar.state == SPECULATIVE else bar)
        else:
            self.rows[row].free_since = bar.end


class LaneChart(LaneFold[ChartLane]):
    """The lanes of one run so far, as far as a drawing can show them.

    With `whole` it keeps the whole run, in coarser steps as the run gets longer; else the last
    `window` seconds. With `served`, the calls of a server are summed in it.
    """

    def __init__(
        self, window: float = 60.0, *, whole: bool = False, served: ServedSums | None = None
    ) -> None:
        super().__init__()
        self.served = served
        self.window = TimeWindow(window, _GRAINS, whole=whole)
        self._peak = 0
        self._outcomes = OutcomeCounts()
        self._recent: deque[list[int]] = deque(maxlen=_RATE_PERIOD + 1)

    @property
    def counts(self) -> LaneCounts:
        """The counts of all lanes together."""
        return sum((lane.counts for lane in self.lanes.values()), LaneCounts())

    @property
    def settled(self) -> int:
        """How many items have an outcome."""
        counts = self.counts
        return counts.done + counts.failed + counts.cancelled + counts.speculative

    @property
    def peak(self) -> int:
        """How many items executed at once, at most."""
        return max([self._peak, *(lane.peak for lane in self.lanes.values())])

    def rate(self, now: float) -> float:
        """Items settled per second, over the last ten seconds."""
        settled = sum(count for second, count in self._recent if second >= now - _RATE_PERIOD)
        return settled / min(_RATE_PERIOD, now) if now > 0 else 0.0

    def _make_lane(self, name: str) -> ChartLane:
        return ChartLane(name, self.window)

    def _advance(self, now: float) -> None:
        super()._advance(now)
        self.window.grow(now)

    def _resumed(self) -> None:
        for lane in self.lanes.values():
            lane.ended[DONE] += lane.ended.pop(SPECULATIVE, 0)

    def _began(self, lane: ChartLane, bar: LaneBar) -> None:  # noqa: ARG002 - all lanes count
        self._peak = max(self._peak, sum(len(lane.running) for lane in self.lanes.values()))

    def _retried(self, event: Event, lane: ChartLane) -> None:  # noqa: ARG002 - only counted
        lane.ended[RETRIED] += 1

    def _settled(self, event: Event, lane: ChartLane, state: str) -> None:
        self._outcomes.settle(event.path, state, lane.ended)
        if self.served is not None:
            self.served.add(event)
        second = int(self.now)
        if not self._recent or self._recent[-1][0] != second:
            self._recent.append([second, 0])
        self._recent[-1][1] += 1

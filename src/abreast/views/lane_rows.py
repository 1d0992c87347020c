"""The rows of a lane in the terminal: bars of what ran in them, how many waited, and counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Final

DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
RETRIED: Final = "retried"
CRASHED: Final = "crashed"
RUNNING: Final = "running"
SPECULATIVE: Final = "speculative"
_SEVERITY: Final = (RUNNING, DONE, CANCELLED, RETRIED, CRASHED, FAILED)  # the worst last
_MAX_KEPT_ROWS: Final = 256  # rows of a lane that keep their bars: no drawing is higher
# Latest starts that are checked for having taken a slot whose release is recorded only now.
_RECENT_STARTS: Final = 8
# Seconds. A driver gives a slot to the next attempt before it records the end of the last one.
INSTANT: Final = 0.002


@dataclass(frozen=True, slots=True)
class LaneBar:
    """One attempt at an item, or several merged because each is too short to be seen.

    Times are the run's own. It waited from `since` to `start`, as far as its row was free then; it
    ran from `start` to `end`.
    """

    key: str
    state: str
    since: float
    start: float
    end: float
    attempt: int = 1
    count: int = 1
    nth: int = 0  # its number in its row, so that neighbours can be given different shades


@dataclass(slots=True)
class LaneRow:
    """A slot of a lane: the bars that ran in it, one after the other, and the one running now."""

    bars: deque[LaneBar] = field(default_factory=deque)
    running: LaneBar | None = None
    free_since: float = 0.0
    turns: int = 0

    def start(self, bar: LaneBar) -> None:
        """Start an attempt in this row."""
        since, start = max(bar.since, self.free_since), max(bar.start, self.free_since)
        self.running = replace(bar, since=since, start=start, end=start, nth=self.turns)
        self.turns += 1

    def stop(self, now: float) -> LaneBar | None:
        """End the running attempt; return its bar."""
        bar, self.running, self.free_since = self.running, None, now
        return bar

    def seen_since(self, begin: float) -> bool:
        """Whether anything ran here since `begin`."""
        return self.running is not None or (bool(self.bars) and self.bars[-1].end >= begin)

    def seen(self, begin: float, now: float) -> Iterator[LaneBar]:
        """The bars since `begin`, the running one as if it ended `now`."""
        yield from (bar for bar in self.bars if bar.end >= begin)
        if self.running is not None:
            yield replace(self.running, end=max(now, self.running.start))

    def keep(self, bar: LaneBar, grain: float) -> None:
        """Add a bar that has ended.

        It is merged with the last one if both together are shorter than `grain` seconds.
        """
        last = self.bars[-1] if self.bars else None
        if last is not None and bar.end - last.since < grain:
            shown = max(last, bar, key=lambda either: _SEVERITY.index(either.state))
            bar = replace(
                shown, since=last.since, start=last.start, end=bar.end, count=last.count + bar.count
            )
            self.bars.pop()
        self.bars.append(bar)


@dataclass(slots=True)
class LaneLevel:
    """A number over time, such as how many items wait.

    Each step has its time, its highest value and its last value.
    """

    value: int = 0
    steps: deque[tuple[float, int, int]] = field(default_factory=deque)

    def change(self, by: int, now: float, grain: float) -> None:
        """Add `by` to the number; changes within `grain` seconds are one step."""
        began, high = now, self.value
        if self.steps and now - self.steps[-1][0] < grain:
            began, high, _ = self.steps.pop()
        self.value += by
        self.steps.append((began, max(high, self.value), self.value))


@dataclass(slots=True)
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
        """Add the counts field by field."""
        return LaneCounts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def change(self, name: str, by: int) -> None:
        """Add `by` to the count of that name."""
        setattr(self, name, getattr(self, name) + by)


@dataclass(slots=True)
class LaneRows:
    """The rows of one lane: as many as items were ever executing in it at once."""

    name: str
    rows: list[LaneRow] = field(default_factory=list)
    counts: LaneCounts = field(default_factory=LaneCounts)
    waiting: LaneLevel = field(default_factory=LaneLevel)
    newest: deque[str] = field(default_factory=lambda: deque(maxlen=_RECENT_STARTS))
    _free: list[int] = field(default_factory=list)
    _peak: int = 0

    @property
    def peak(self) -> int:
        """How many items executed at once, at most."""
        return max(self._peak, len(self.rows))

    def take(self) -> int:
        """Take the lowest free row."""
        if self._free:
            return heappop(self._free)
        self.rows.append(LaneRow())
        return len(self.rows) - 1

    def take_since(self, start: float) -> int:
        """Take the lowest row that has been free since `start`."""
        for place in sorted(self._free):
            if self.rows[place].free_since <= start + INSTANT:
                self._free.remove(place)
                heapify(self._free)
                return place
        self.rows.append(LaneRow())
        return len(self.rows) - 1

    def give(self, place: int) -> None:
        """Free a row; the last row is removed if it has no bars."""
        if place == len(self.rows) - 1 and not self.rows[place].bars:
            self.rows.pop()
        else:
            heappush(self._free, place)

    def keep(self, place: int, bar: LaneBar, grain: float) -> None:
        """Add a bar that has ended to a row."""
        self._peak = max(self._peak, place + 1)
        if place < _MAX_KEPT_ROWS:
            self.rows[place].keep(bar, grain)

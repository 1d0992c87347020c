"""The rows of a lane on the web page: every attempt that ran in it, as a bar in time.

Bars are kept in columns (arrays), so that 100,000 of them need little memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

STATES: Final = ("running", "done", "speculative", "cancelled", "retried", "crashed", "failed")
"""From the best to the worst: bars that are merged for the screen get the worst state's colour."""
RUNNING, DONE, SPECULATIVE, CANCELLED, RETRIED, CRASHED, FAILED = range(len(STATES))
# Seconds. A driver gives a slot to the next attempt before it records the end of the last one.
INSTANT: Final = 0.002
# Latest starts that are checked for having taken a slot whose release is recorded only now.
_RECENT_STARTS: Final = 8


class AttemptBar(NamedTuple):
    """One attempt, in the run's own time: it waited from `since`, and ran from `start` to `end`."""

    since: float
    start: float
    end: float
    state: int
    item: int


@dataclass(slots=True)
class AttemptRow:
    """A slot: the attempts that ran in it, one after the other."""

    since: array[float] = field(default_factory=lambda: array("d"))
    start: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    state: bytearray = field(default_factory=bytearray)
    item: array[int] = field(default_factory=lambda: array("l"))
    free_since: float = 0.0

    def keep(self, bar: AttemptBar) -> None:
        """Add a bar that has ended."""
        start = max(bar.start, self.free_since)
        self.since.append(min(bar.since, start))
        self.start.append(start)
        self.end.append(max(bar.end, start))
        self.state.append(bar.state)
        self.item.append(bar.item)
        self.free_since = self.end[-1]

    def between(
        self, begin: float, finish: float
    ) -> Iterator[tuple[float, float, float, int, int]]:
        """The bars that waited or ran within a period, in order."""
        at = bisect_left(self.end, begin)
        for values in zip(
            self.since[at:],
            self.start[at:],
            self.end[at:],
            self.state[at:],
            self.item[at:],
            strict=True,
        ):
            if values[0] > finish:
                return
            yield values


@dataclass(slots=True)
class _Running:
    row: int
    bar: AttemptBar


@dataclass(slots=True)
class AttemptLane:
    """One lane: as many rows as were ever in use at once, and the changes of its limit."""

    name: str
    calls: bool = False
    rows: list[AttemptRow] = field(default_factory=list)
    running: dict[str, _Running] = field(default_factory=dict)
    limits: list[tuple[float, float]] = field(default_factory=list)
    decisions: list[dict[str, object]] = field(default_factory=list)
    waiting: dict[str, float] = field(default_factory=dict)
    counts: list[int] = field(default_factory=lambda: [0] * len(STATES))
    # Free rows, each with the time since when it is free, sorted by that time.
    _free: list[tuple[float, int]] = field(default_factory=list)
    _recent_starts: list[str] = field(default_factory=list)

    def begin(self, path: str, bar: AttemptBar) -> None:
        """Start an attempt in the lowest free row."""
        if self._free:
            at = min(range(len(self._free)), key=lambda place: self._free[place][1])
            _, row = self._free.pop(at)
        else:
            row = len(self.rows)
            self.rows.append(AttemptRow())
        self.running[path] = _Running(row, bar)
        self._recent_starts = [*self._recent_starts[1 - _RECENT_STARTS :], path]

    def finish(self, path: str, end: float, state: int) -> None:
        """End a running attempt."""
        ended = self.running.pop(path)
        self.rows[ended.row].keep(ended.bar._replace(end=end, state=state))
        self.counts[state] += 1
        if not self._move_successor(ended.row, end):
            self._release(ended.row)

    def brief(self, bar: AttemptBar) -> None:
        """Add an attempt so short that its start was not recorded, in a row that was free then."""
        # The row that was freed last is taken: bars arrive ordered by their ends, so this never
        # needs more rows than were in use.
        at = bisect_right(self._free, (bar.start + INSTANT, len(self.rows)))
        if at:
            _, row = self._free.pop(at - 1)
        else:
            row = len(self.rows)
            self.rows.append(AttemptRow())
        self.rows[row].keep(bar)
        self.counts[bar.state] += 1
        self._release(row)

    def _release(self, row: int) -> None:
        insort(self._free, (self.rows[row].free_since, row))

    def _move_successor(self, row: int, now: float) -> bool:
        """Move an attempt that has just started into the row that was freed for it.

        Returns False if there is no such attempt.
        """
        started = [self.running[path] for path in self._recent_starts if path in self.running]
        last = max(started, key=lambda one: one.row, default=None)
        if last is None or last.row <= row or now - last.bar.start > INSTANT:
            return False
        self._release(last.row)
        last.row = row
        return True

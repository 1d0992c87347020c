"""The rows of a lane: every attempt that ever ran in it as a bar in time, kept in columns so that 100,000 are light."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

STATES: Final = ("running", "done", "speculative", "cancelled", "retried", "crashed", "failed")
"""From the best to the worst: where several bars are too short to be told apart, the worst gives its colour."""
RUNNING, DONE, SPECULATIVE, CANCELLED, RETRIED, CRASHED, FAILED = range(len(STATES))
INSTANT: Final = (
    0.002  # seconds; a driver hands a slot on before it notes that its last holder has ended
)
# starts looked back at, to see whether one of them took a slot that is only now noted as free
_NEWEST: Final = 8


class AttemptBar(NamedTuple):
    """One attempt, in the run's own time: from `since` it waited, from `start` to `end` it worked."""

    since: float
    start: float
    end: float
    state: int
    item: int


@dataclass(slots=True)
class AttemptRow:
    """A slot: what ran in it one after the other."""

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
        """The bars that waited or worked within a window, in order."""
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
    """One lane of the picture: as many rows as were ever in use at once, and what changed its limit."""

    name: str
    calls: bool = False
    rows: list[AttemptRow] = field(default_factory=list)
    running: dict[str, _Running] = field(default_factory=dict)
    limits: list[tuple[float, float]] = field(default_factory=list)
    decisions: list[dict[str, object]] = field(default_factory=list)
    waiting: dict[str, float] = field(default_factory=dict)
    counts: list[int] = field(default_factory=lambda: [0] * len(STATES))
    _free: list[tuple[float, int]] = field(
        default_factory=list
    )  # since when, and which, in that order
    _newest: list[str] = field(default_factory=list)

    def begin(self, path: str, bar: AttemptBar) -> None:
        """Something starts, in the lowest free row."""
        if self._free:
            at = min(range(len(self._free)), key=lambda place: self._free[place][1])
            _, row = self._free.pop(at)
        else:
            row = len(self.rows)
            self.rows.append(AttemptRow())
        self.running[path] = _Running(row, bar)
        self._newest = [*self._newest[1 - _NEWEST :], path]

    def finish(self, path: str, end: float, state: int) -> None:
        """What was running runs no more."""
        ended = self.running.pop(path)
        self.rows[ended.row].keep(ended.bar._replace(end=end, state=state))
        self.counts[state] += 1
        if not self._follow(ended.row, end):
            self._give(ended.row)

    def brief(self, bar: AttemptBar) -> None:
        """Something so short that its start was not written: into a row that was free meanwhile."""
        # The one that was freed last: bars come by their ends, and so they never need more rows
        # than were in use.
        at = bisect_right(self._free, (bar.start + INSTANT, len(self.rows)))
        if at:
            _, row = self._free.pop(at - 1)
        else:
            row = len(self.rows)
            self.rows.append(AttemptRow())
        self.rows[row].keep(bar)
        self.counts[bar.state] += 1
        self._give(row)

    def _give(self, row: int) -> None:
        insort(self._free, (self.rows[row].free_since, row))

    def _follow(self, row: int, now: float) -> bool:
        """Move what has just started into the row that it was waiting for.

        False if there is no such item.
        """
        started = [self.running[path] for path in self._newest if path in self.running]
        last = max(started, key=lambda one: one.row, default=None)
        if last is None or last.row <= row or now - last.bar.start > INSTANT:
            return False
        self._give(last.row)
        last.row = row
        return True

"""The rows of a lane: bars of what ran in them, how many waited, and what was counted."""

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
_WORST: Final = (RUNNING, DONE, CANCELLED, RETRIED, CRASHED, FAILED)
_ROWS: Final = 256  # rows of a lane that keep what ran in them: no picture is higher
_NEWEST: Final = 8
INSTANT: Final = (
    0.002  # seconds; a driver hands a slot on before it notes that its last holder has ended
)


@dataclass(frozen=True, slots=True)
class LaneBar:
    """One attempt at an item, in the run's own time.

    Or several that are too short to be told apart.

    From `since` to `start` it waited, as far as its row was free meanwhile; from `start` to `end`
    it worked.
    """

    key: str
    state: str
    since: float
    start: float
    end: float
    attempt: int = 1
    count: int = 1
    nth: int = 0  # of its row, so that neighbours can be given different shades


@dataclass(slots=True)
class LaneRow:
    """A slot of a lane: what ran in it, one after the other, and what runs in it now."""

    bars: deque[LaneBar] = field(default_factory=deque)
    running: LaneBar | None = None
    free_since: float = 0.0
    turns: int = 0

    def start(self, bar: LaneBar) -> None:
        """Something starts here."""
        since, start = max(bar.since, self.free_since), max(bar.start, self.free_since)
        self.running = replace(bar, since=since, start=start, end=start, nth=self.turns)
        self.turns += 1

    def stop(self, now: float) -> LaneBar | None:
        """What runs here does so no more."""
        bar, self.running, self.free_since = self.running, None, now
        return bar

    def seen_since(self, begin: float) -> bool:
        """Whether anything ran here since."""
        return self.running is not None or (bool(self.bars) and self.bars[-1].end >= begin)

    def seen(self, begin: float, now: float) -> Iterator[LaneBar]:
        """What ran here since, the running one as if it ended `now`."""
        yield from (bar for bar in self.bars if bar.end >= begin)
        if self.running is not None:
            yield replace(self.running, end=max(now, self.running.start))

    def keep(self, bar: LaneBar, grain: float) -> None:
        """Add a bar that has ended.

        It becomes one with the last if both together are too short to be seen.
        """
        last = self.bars[-1] if self.bars else None
        if last is not None and bar.end - last.since < grain:
            shown = max(last, bar, key=lambda either: _WORST.index(either.state))
            bar = replace(
                shown, since=last.since, start=last.start, end=bar.end, count=last.count + bar.count
            )
            self.bars.pop()
        self.bars.append(bar)


@dataclass(slots=True)
class LaneLevel:
    """A number over time, such as how many wait: for each step its time, its highest value and its last."""

    value: int = 0
    steps: deque[tuple[float, int, int]] = field(default_factory=deque)

    def change(self, by: int, now: float, grain: float) -> None:
        """Go up or down."""
        began, high = now, self.value
        if self.steps and now - self.steps[-1][0] < grain:
            began, high, _ = self.steps.pop()
        self.value += by
        self.steps.append((began, max(high, self.value), self.value))


@dataclass(slots=True)
class LaneCounts:
    """How many items came to what end.

    `retried` counts attempts, `speculative` what ran past its map's stop.
    """

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    speculative: int = 0
    running: int = 0
    waiting: int = 0

    def __add__(self, other: LaneCounts) -> LaneCounts:
        """Both together."""
        return LaneCounts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def change(self, name: str, by: int) -> None:
        """Count one up or down."""
        setattr(self, name, getattr(self, name) + by)


@dataclass(slots=True)
class Strip:
    """One lane's part of the picture: as many rows as items were ever executing in it at once."""

    name: str
    rows: list[LaneRow] = field(default_factory=list)
    counts: LaneCounts = field(default_factory=LaneCounts)
    waiting: LaneLevel = field(default_factory=LaneLevel)
    newest: deque[str] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    _free: list[int] = field(default_factory=list)
    _most: int = 0

    @property
    def peak(self) -> int:
        """How many executed at once, at most."""
        return max(self._most, len(self.rows))

    def take(self) -> int:
        """The lowest free row."""
        if self._free:
            return heappop(self._free)
        self.rows.append(LaneRow())
        return len(self.rows) - 1

    def take_since(self, start: float) -> int:
        """The lowest row that has been free since then."""
        for place in sorted(self._free):
            if self.rows[place].free_since <= start + INSTANT:
                self._free.remove(place)
                heapify(self._free)
                return place
        self.rows.append(LaneRow())
        return len(self.rows) - 1

    def give(self, place: int) -> None:
        """Free a row; the last one is gone if nothing is kept of it."""
        if place == len(self.rows) - 1 and not self.rows[place].bars:
            self.rows.pop()
        else:
            heappush(self._free, place)

    def keep(self, place: int, bar: LaneBar, grain: float) -> None:
        """Keep what ran in a row."""
        self._most = max(self._most, place + 1)
        if place < _ROWS:
            self.rows[place].keep(bar, grain)

"""The rows of a lane: which attempt ran in which row, and what waits.

A lane has as many rows as were ever in use at once. What a row keeps of its bars is up to its
class: all of them for the page, or what can still be seen for the terminal.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from abreast.core.item import unescape

STATES: Final = ("running", "done", "speculative", "cancelled", "retried", "crashed", "failed")
"""From the best to the worst: bars that are merged for the screen get the worst state's colour."""
RUNNING, DONE, SPECULATIVE, CANCELLED, RETRIED, CRASHED, FAILED = STATES
SEVERITY: Final = {state: place for place, state in enumerate(STATES)}
# Seconds. A driver gives a slot to the next attempt before it records the end of the last one.
_INSTANT: Final = 0.002
# Latest starts that are checked for having taken a slot whose release is recorded only now.
_RECENT_STARTS: Final = 8


class LaneBar(NamedTuple):
    """One attempt at an item, or several merged because each is too short to be seen.

    Times are the run's own: it waited from `since` to `start`, and ran from `start` to `end`.
    """

    path: str
    state: str
    since: float
    start: float
    end: float
    attempt: int = 1
    attempts: int = 1  # merged into this bar
    nth: int = 0  # its number in its row, so that neighbours can be given different shades

    @property
    def key(self) -> str:
        """The item's key."""
        return unescape(self.path.rpartition("/")[2])


class LaneRow(ABC):
    """A slot of a lane: what ran in it, one after the other, and what runs in it now."""

    def __init__(self) -> None:
        self.running: LaneBar | None = None
        self.free_since = 0.0

    @abstractmethod
    def __len__(self) -> int:
        """How many bars are kept."""

    def begin(self, bar: LaneBar) -> None:
        """Start an attempt."""
        self.running = bar

    @abstractmethod
    def keep(self, bar: LaneBar) -> None:
        """Keep a bar that has ended, and set `free_since`."""


Row = TypeVar("Row", bound=LaneRow)


class Lane(Generic[Row]):
    """One lane: its rows, the row of each item that runs, and since when each other item waits."""

    def __init__(self, name: str, make_row: Callable[[], Row]) -> None:
        self.name = name
        self.rows: list[Row] = []
        self.running: dict[str, int] = {}
        self.waiting: dict[str, float] = {}
        self._make_row = make_row
        # Free rows, each with the time since when it is free, sorted by that time.
        self._free: list[tuple[float, int]] = []
        self._newest: deque[str] = deque(maxlen=_RECENT_STARTS)

    def wait(self, path: str, now: float) -> None:
        """Let an item wait."""
        self.waiting[path] = now

    def stop_waiting(self, path: str, now: float) -> float:  # noqa: ARG002 - for lanes that keep it
        """End an item's waiting; return the time since when it waited."""
        return self.waiting.pop(path)

    def begin(self, bar: LaneBar) -> None:
        """Start an attempt in the lowest row that was free then."""
        row = self._take(min(self._free_at(bar.start), key=itemgetter(1), default=None))
        self.rows[row].begin(bar)
        self.running[bar.path] = row
        self._newest.append(bar.path)

    def end(self, path: str, now: float, state: str) -> None:
        """End a running attempt."""
        row = self.running.pop(path)
        bar, self.rows[row].running = self.rows[row].running, None
        if bar is not None:
            self._keep(row, bar._replace(end=now, state=state))
        if not self._move_successor(row, now):
            self._give(row)

    def brief(self, bar: LaneBar) -> None:
        """Add an attempt so short that its start was not recorded, in a row that was free then."""
        # The row that was freed last is taken: bars arrive ordered by their ends, so this never
        # needs more rows than were in use.
        free = self._free_at(bar.start)
        row = self._take(free[-1] if free else None)
        self._keep(row, bar)
        self._give(row)

    def _free_at(self, start: float) -> list[tuple[float, int]]:
        """The rows that are free since before a time."""
        return self._free[: bisect_right(self._free, (start + _INSTANT, len(self.rows)))]

    def _keep(self, row: int, bar: LaneBar) -> None:
        self.rows[row].keep(bar)

    def _take(self, free: tuple[float, int] | None) -> int:
        if free is None:
            self.rows.append(self._make_row())
            return len(self.rows) - 1
        self._free.remove(free)
        return free[1]

    def _give(self, row: int) -> None:
        """Free a row; the last row is removed if it has no bars."""
        if row == len(self.rows) - 1 and not len(self.rows[row]):
            self.rows.pop()
        else:
            insort(self._free, (self.rows[row].free_since, row))

    def _move_successor(self, row: int, now: float) -> bool:
        """Move an attempt that has just started into the row that was freed for it.

        Returns False if there is no such attempt.
        """
        started = [(self.running[path], path) for path in self._newest if path in self.running]
        last, path = max(started, default=(0, ""))
        if last <= row:
            return False
        bar = self.rows[last].running
        if bar is None or now - bar.start > _INSTANT:
            return False
        self.rows[last].running = None
        self._give(last)
        self.rows[row].begin(bar)
        self.running[path] = row
        return True


_FIRST_WINDOW: Final = 0.25  # seconds; the window of a whole run grows with it from here


class TimeWindow:
    """The time that a drawing can show: the last `seconds`, or the whole run so far."""

    def __init__(self, seconds: float, grains: int, *, whole: bool) -> None:
        """Divide the window into `grains`: what is shorter than one is merged."""
        self.seconds = _FIRST_WINDOW if whole else seconds
        self.whole = whole
        self._grains = grains

    @property
    def grain(self) -> float:
        """Seconds of the shortest thing that can be seen."""
        return self.seconds / self._grains

    def grow(self, now: float) -> None:
        """Show the time up to `now`: a whole run is shown in coarser steps as it gets longer."""
        while self.whole and now > self.seconds:
            self.seconds *= 2

    def begin(self, now: float) -> float:
        """The earliest time that is shown."""
        return 0.0 if self.whole else max(0.0, now - self.seconds)


class LaneLevel:
    """A number over time, such as how many items wait.

    Each step has its time, its highest value and its last value.
    """

    def __init__(self, window: TimeWindow) -> None:
        """Start at zero; steps that are no longer within the window are forgotten."""
        self.value = 0
        self.steps: deque[tuple[float, int, int]] = deque()
        self._window = window

    def change(self, by: int, now: float) -> None:
        """Add `by` to the number; changes within one grain are one step."""
        began, high = now, self.value
        if self.steps and now - self.steps[-1][0] < self._window.grain:
            began, high, _ = self.steps.pop()
        self.value += by
        self.steps.append((began, max(high, self.value), self.value))
        while len(self.steps) > 1 and self.steps[1][0] < self._window.begin(now):
            self.steps.popleft()

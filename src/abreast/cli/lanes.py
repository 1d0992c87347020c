"""The lanes of a run as its events draw them: a fold from the journal to rows of bars, counts and rates.

It is fed event by event, in order, and knows nothing else: drawing an old run and watching a live one are the same. An
event costs the same however long the run is, and only what can still be seen is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Final

from abreast.core.events import (
    ATTEMPT_FAILED,
    ITEM_QUEUED,
    ITEM_READ,
    ITEM_SETTLED,
    ITEM_STARTED,
    ITEMS_COMPLETE,
    MAP_ENDED,
    MAP_STARTED,
    MAP_STOPPED,
    RUN_ENDED,
    RUN_RESUMED,
    RUN_STARTED,
    Event,
)
from abreast.core.item import unescape
from abreast.core.outcome import Usage

DONE: Final = "done"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
RETRIED: Final = "retried"
CRASHED: Final = "crashed"
RUNNING: Final = "running"
_WORST: Final = (RUNNING, DONE, CANCELLED, RETRIED, CRASHED, FAILED)

OTHERS: Final = "others"
_STRIPS: Final = 64  # lanes told apart; all further ones are one
_ROWS: Final = 256  # rows of a lane that keep what ran in them; no picture is higher
_GRAINS: Final = 1000  # what is shorter than this part of the window can't be seen by itself
_UNSETTLED: Final = 65_536  # failed or cancelled items remembered, in case they are run again
_RECENT: Final = 10.0  # seconds over which the rate is taken
_SEAMS: Final = 64


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt at an item in the run's own time, or several that are too short to be told apart.

    From `since` to `start` it waited, as far as its row was free meanwhile; from `start` to `end` it worked.
    """

    key: str
    state: str
    since: float
    start: float
    end: float
    attempt: int = 1
    count: int = 1


@dataclass(slots=True)
class Row:
    """A slot of a lane: what ran in it, one after the other, and what runs in it now."""

    bars: deque[Bar] = field(default_factory=deque)
    running: Bar | None = None
    free_since: float = 0.0

    def seen(self, now: float) -> Iterator[Bar]:
        """Its bars, the running one with its end at `now`."""
        yield from self.bars
        if self.running is not None:
            yield replace(self.running, end=max(now, self.running.start))

    def keep(self, bar: Bar, grain: float) -> None:
        """Add a bar that has ended; it becomes one with the last if both are too short to be seen."""
        last = self.bars[-1] if self.bars else None
        if last is not None and bar.end - last.since < grain:
            worst = max(last.state, bar.state, key=_WORST.index)
            shown = bar if bar.state == worst else last
            count = last.count + bar.count
            bar = Bar(shown.key, worst, last.since, last.start, bar.end, shown.attempt, count)
            self.bars.pop()
        self.bars.append(bar)

    def forget(self, before: float) -> None:
        """Drop what ended before that time."""
        while self.bars and self.bars[0].end < before:
            self.bars.popleft()

    def coarsen(self, grain: float) -> None:
        """Make one of what can't be told apart any more."""
        bars, self.bars = self.bars, deque()
        for bar in bars:
            self.keep(bar, grain)


@dataclass(slots=True)
class Level:
    """A number over time, such as how many wait: each step's time, its highest value, and its last."""

    value: int = 0
    steps: deque[tuple[float, int, int]] = field(default_factory=deque)

    def change(self, by: int, now: float, grain: float) -> None:
        """Go up or down."""
        self.value += by
        if self.steps and now - self.steps[-1][0] < grain:
            began, high, _ = self.steps.pop()
            self.steps.append((began, max(high, self.value), self.value))
        else:
            self.steps.append((now, self.value, self.value))

    def forget(self, before: float) -> None:
        """Drop what no longer matters before that time."""
        while len(self.steps) > 1 and self.steps[1][0] < before:
            self.steps.popleft()

    def coarsen(self, grain: float) -> None:
        """Make one of steps that can't be told apart any more."""
        steps, self.steps = self.steps, deque()
        for began, high, last in steps:
            if self.steps and began - self.steps[-1][0] < grain:
                first, higher, _ = self.steps.pop()
                self.steps.append((first, max(high, higher), last))
            else:
                self.steps.append((began, high, last))


@dataclass(slots=True)
class Counts:
    """How many items came to what end; `retried` counts attempts."""

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    speculative: int = 0
    running: int = 0
    waiting: int = 0

    @property
    def settled(self) -> int:
        """Those that have an outcome."""
        return self.done + self.failed + self.cancelled + self.speculative

    def __add__(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(slots=True)
class Strip:
    """One lane's part of the picture: as many rows as items were ever executing in it at once."""

    name: str
    rows: list[Row] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    waiting: Level = field(default_factory=Level)
    _free: list[int] = field(default_factory=list)

    def take(self) -> int:
        """The lowest free row."""
        self.counts.running += 1
        if self._free:
            return heappop(self._free)
        self.rows.append(Row())
        return len(self.rows) - 1

    def give(self, place: int) -> None:
        """Free a row."""
        self.counts.running -= 1
        heappush(self._free, place)

    @property
    def peak(self) -> int:
        """How many were executing at once, at most."""
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a running item is in the picture."""

    strip: Strip
    row: int


@dataclass(slots=True)
class _Map:
    """A map that is open: its name in the picture, and those of its items that wait or run."""

    label: str
    members: set[str] = field(default_factory=set)


class Chart:
    """The picture of one run so far. Time in it is the time it was driven: what lay between a crash and the resume is
    left out, and marked by a seam.

    With `whole`, all of the run stays in it, more and more coarsely; else its last `window` seconds.
    """  # noqa: D205 - one thought

    def __init__(self, window: float = 60.0, *, whole: bool = False) -> None:
        """Nothing has happened yet."""
        self.window = window
        self.whole = whole
        self.now = 0.0
        self.seq = 0
        self.wall = 0.0
        self.peak = 0
        self.read = 0
        self.complete = False
        self.state = RUNNING
        self.reason = ""
        self.usage = Usage()
        self.seams: deque[float] = deque(maxlen=_SEAMS)
        self.strips: dict[str, Strip] = {}
        self._offset: float | None = None
        self._places: dict[str, _Place] = {}
        self._waiting: dict[str, tuple[Strip, float]] = {}
        self._maps: dict[str, _Map] = {}
        self._unsettled: dict[int, tuple[str, Strip]] = {}
        self._recent: deque[tuple[int, int]] = deque()
        self._turns: dict[str, Callable[[Event], None]] = {
            RUN_STARTED: self._run_started, RUN_RESUMED: self._run_started, RUN_ENDED: self._run_ended,
            MAP_STARTED: self._map_started, MAP_STOPPED: self._map_stopped, MAP_ENDED: self._map_ended,
            ITEM_READ: self._item_read, ITEMS_COMPLETE: self._items_complete, ITEM_QUEUED: self._item_queued,
            ITEM_STARTED: self._item_started, ATTEMPT_FAILED: self._attempt_failed, ITEM_SETTLED: self._item_settled,
        }  # fmt: skip

    # --- what it shows ----------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """All lanes together."""
        return sum((strip.counts for strip in self.strips.values()), Counts())

    @property
    def grain(self) -> float:
        """What is shorter can't be told apart from its neighbours."""
        return self.window / _GRAINS

    def at(self, wall: float) -> float:
        """The picture's time at a time of day, for a run that is being driven."""
        return self.now + max(0.0, wall - self.wall)

    def rate(self, now: float) -> float:
        """Items settled per second, lately."""
        over = min(_RECENT, now)
        settled = sum(count for second, count in self._recent if second > now - _RECENT - 1)
        return settled / over if over > 0 else 0.0

    # --- what happens -----------------------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Take in the next event."""
        turn = self._turns.get(event.kind)
        if turn is None:
            return
        self.seq, self.wall = event.seq, event.wall
        if self._offset is not None:
            self._move(event.mono + self._offset)
        elif event.kind not in (RUN_STARTED, RUN_RESUMED):
            self._offset = self.now - event.mono
        turn(event)

    def cut(self) -> None:
        """The driver is gone, and with it what it was executing."""
        for path in list(self._places):
            self._end(path, CRASHED)
        for path in list(self._waiting):
            self._stop_waiting(path)
        self._maps.clear()

    def _move(self, now: float) -> None:
        self.now = max(self.now, now)
        while self.whole and self.now > self.window:
            self.window *= 2
            for strip in self.strips.values():
                strip.waiting.coarsen(self.grain)
                for row in strip.rows:
                    row.coarsen(self.grain)

    def _run_started(self, event: Event) -> None:
        self.cut()
        if event.kind == RUN_RESUMED:
            self.seams.append(self.now)
        self._offset = self.now - event.mono
        self.state, self.reason = RUNNING, ""

    def _run_ended(self, event: Event) -> None:
        for path in list(self._maps):
            self._close(path)
        self.state, self.reason = str(event.data.get("state", DONE)), str(event.data.get("reason", ""))

    def _map_started(self, event: Event) -> None:
        self._maps[event.path] = _Map(self._label(event.path))

    def _map_stopped(self, event: Event) -> None:
        self.reason = f"ended at item {event.data.get('at')} ({event.data.get('reason')})"

    def _map_ended(self, event: Event) -> None:
        self._close(event.path)

    def _item_read(self, _: Event) -> None:
        self.read += 1

    def _items_complete(self, _: Event) -> None:
        self.complete = True

    def _item_queued(self, event: Event) -> None:
        if event.path not in self._waiting and event.path not in self._places:
            self._wait(event)

    def _item_started(self, event: Event) -> None:
        if event.path in self._places:
            self._end(event.path, CRASHED)
        strip = self._strip(event)
        since = self._stop_waiting(event.path) if event.path in self._waiting else self.now
        place = _Place(strip, strip.take())
        row = strip.rows[place.row]
        attempt = event.data.get("attempt")
        key = unescape(event.path.rpartition("/")[2])
        row.running = Bar(key, RUNNING, max(since, row.free_since), self.now, self.now, attempt if isinstance(attempt, int) else 1)
        self._places[event.path] = place
        self.peak = max(self.peak, len(self._places))
        self._map(event.path).members.add(event.path)

    def _attempt_failed(self, event: Event) -> None:
        if event.path in self._places:
            self._end(event.path, RETRIED)
        self._strip(event).counts.retried += 1
        if event.path not in self._waiting:
            self._wait(event)

    def _item_settled(self, event: Event) -> None:
        data, state = event.data, str(event.data.get("state"))
        strip = self._strip(event)
        if event.path in self._places:
            self._end(event.path, state)
        if event.path in self._waiting:
            self._stop_waiting(event.path)
        self._map(event.path).members.discard(event.path)
        kind = "speculative" if data.get("speculative") and state == DONE else state
        self._recount(event.path, kind, strip)
        second = int(self.now)
        count = self._recent.pop()[1] if self._recent and self._recent[-1][0] == second else 0
        self._recent.append((second, count + 1))
        while self._recent[0][0] < second - _RECENT - 1:
            self._recent.popleft()
        if "requests" in data:
            self.usage += _usage(event)

    # --- how it is kept ---------------------------------------------------------------------------------------------

    def _recount(self, path: str, state: str, strip: Strip) -> None:
        """Count an outcome, in place of an earlier one of the same item: what failed may be run again."""
        before = self._unsettled.pop(hash(path), None)
        if before is not None:
            _count(before[1].counts, before[0], -1)
        _count(strip.counts, state, 1)
        if state != DONE and len(self._unsettled) < _UNSETTLED:
            self._unsettled[hash(path)] = (state, strip)

    def _wait(self, event: Event) -> None:
        strip = self._strip(event)
        strip.counts.waiting += 1
        strip.waiting.change(1, self.now, self.grain)
        self._waiting[event.path] = (strip, self.now)
        self._map(event.path).members.add(event.path)
        if not self.whole:
            strip.waiting.forget(self.now - self.window)

    def _stop_waiting(self, path: str) -> float:
        strip, since = self._waiting.pop(path)
        strip.counts.waiting -= 1
        strip.waiting.change(-1, self.now, self.grain)
        return since

    def _end(self, path: str, state: str) -> None:
        """What was running is so no more."""
        place = self._places.pop(path)
        row = place.strip.rows[place.row]
        bar, row.running = row.running, None
        row.free_since = self.now
        place.strip.give(place.row)
        if bar is not None and place.row < _ROWS:
            row.keep(replace(bar, state=state, end=self.now), self.grain)
            if not self.whole:
                row.forget(self.now - self.window)

    def _close(self, path: str) -> None:
        """A map is over: what waited in it waits no more, and nothing of it runs."""
        closed = self._maps.pop(path, None)
        for member in closed.members if closed else ():
            if member in self._places:
                self._end(member, CANCELLED)
            if member in self._waiting:
                self._stop_waiting(member)

    def _map(self, path: str) -> _Map:
        """The map that an item belongs to; a step is a map of its own name."""
        found = self._maps.get(path) or self._maps.get(path.rpartition("/")[0])
        if found is None:
            above = path.rpartition("/")[0] or path
            found = self._maps[above] = _Map(self._label(above))
        return found

    def _label(self, path: str) -> str:
        """The map's path without its run, and with one name for all maps beneath the items of one other."""
        above, _, name = path.rpartition("/")
        parts = [name]
        while above:
            if above in self._places:
                parts += ["*", self._map(above).label]
                break
            above, _, name = above.rpartition("/")
            if above:
                parts.append(name)
        return "/".join(reversed(parts))

    def _strip(self, event: Event) -> Strip:
        name = event.lane if event.lane is not None else self._map(event.path).label
        found = self.strips.get(name)
        if found is None:
            if len(self.strips) >= _STRIPS:
                name = OTHERS
            found = self.strips.setdefault(name, Strip(name))
        return found


def _count(counts: Counts, state: str, by: int) -> None:
    if state in Counts.__slots__:
        setattr(counts, state, getattr(counts, state) + by)


def _usage(event: Event) -> Usage:
    requests, given, made, usd = (event.data.get(name) for name in ("requests", "input_tokens", "output_tokens", "usd"))
    return Usage(
        requests if isinstance(requests, int) else 0,
        given if isinstance(given, int) else 0,
        made if isinstance(made, int) else 0,
        float(usd) if isinstance(usd, (int, float)) else None,
        bool(event.data.get("estimate")),
    )

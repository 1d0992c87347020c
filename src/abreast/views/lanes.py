"""The lanes of a run for the terminal: events folded into rows of bars, counts and rates.

Its only input is the events, in order, so drawing an old run and watching a live one are the same.
An event takes constant time however long the run is, and only what can still be seen is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from abreast.core import events
from abreast.core.driven_time import DrivenTime
from abreast.core.events import Event
from abreast.core.item import unescape
from abreast.core.outcome import NO_USAGE
from abreast.run.outcome_record import usage_of
from abreast.views.lane_rows import (
    CANCELLED,
    CRASHED,
    DONE,
    FAILED,
    INSTANT,
    RETRIED,
    RUNNING,
    SPECULATIVE,
    LaneBar,
    LaneCounts,
    LaneRows,
)

OTHERS: Final = "others"
_MAX_LANES: Final = 64  # shown separately; all further ones are shown as one
_MAX_SEAMS: Final = 64
_GRAINS: Final = 500  # per window: bars shorter than one grain are merged
_MAX_UNSETTLED: Final = 65_536  # failed or cancelled items remembered, in case they are run again
_FIRST_WINDOW: Final = 0.25  # seconds; the window of a whole run grows with it from here
_RATE_PERIOD: Final = 10  # seconds over which the rate is measured


@dataclass(slots=True)
class _Map:
    """A map that has not ended: the name of its lane, and its items that wait or run."""

    label: str
    members: set[str] = field(default_factory=set)


class LaneChart:
    """The lanes of one run so far, computed from events of the `KINDS`.

    Its time is the time that the run was driven: the time between a crash and the resume is left
    out, and marked by a seam. With `whole` it keeps the whole run, in coarser steps as the run gets
    longer; else the last `window` seconds.
    """

    def __init__(self, window: float = 60.0, *, whole: bool = False) -> None:
        """Start before the first event."""
        self.window = _FIRST_WINDOW if whole else window
        self.whole = whole
        self.now = 0.0
        self.peak = self.read = self.settled = 0
        self.complete = False
        self.state, self.reason = RUNNING, ""
        self.usage = NO_USAGE
        self.seams: deque[float] = deque(maxlen=_MAX_SEAMS)
        self.strips: dict[str, LaneRows] = {}
        self._time = DrivenTime()
        self._places: dict[str, tuple[LaneRows, int]] = {}
        self._waiting: dict[str, tuple[LaneRows, float]] = {}
        self._maps: dict[str, _Map] = {}
        self._unsettled: dict[int, tuple[LaneRows, str]] = {}
        self._recent: deque[list[int]] = deque(maxlen=_RATE_PERIOD + 1)

    # --- reading ----------------------------------------------------------------------------------

    @property
    def counts(self) -> LaneCounts:
        """The counts of all lanes together."""
        return sum((lane.counts for lane in self.strips.values()), LaneCounts())

    def at(self, wall: float) -> float:
        """The run's own time at a wall-clock time, while the run is driven."""
        return self._time.at(wall)

    def rate(self, now: float) -> float:
        """Items settled per second, over the last ten seconds."""
        settled = sum(count for second, count in self._recent if second >= now - _RATE_PERIOD)
        return settled / min(_RATE_PERIOD, now) if now > 0 else 0.0

    # --- events -----------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Add the next event."""
        handle = self._HANDLERS.get(event.kind)
        if handle is None:
            return
        self.now = self._time.take(event)
        while self.whole and self.now > self.window:
            self.window *= 2
        handle(self, event)

    def cut(self) -> None:
        """End everything that waits or runs as crashed: the driver is gone."""
        self.state = CRASHED
        for path in list(self._places):
            self._end(path, CRASHED)
        for path in list(self._waiting):
            self._stop_waiting(path)
        self._maps.clear()

    def _run_started(self, _: Event) -> None:
        self.state, self.reason = RUNNING, ""

    def _run_resumed(self, _: Event) -> None:
        self.cut()
        # What ended after an interrupt is used by the next driver.
        for lane in self.strips.values():
            lane.counts.change(DONE, lane.counts.speculative)
            lane.counts.speculative = 0
        self.seams.append(self.now)
        self.state, self.reason = RUNNING, ""

    def _run_ended(self, event: Event) -> None:
        for path in list(self._maps):
            self._close_map(path)
        self.state, self.reason = (
            str(event.data.get("state", DONE)),
            str(event.data.get("reason") or self.reason),
        )

    def _map_started(self, event: Event) -> None:
        self._maps[event.path] = _Map(self._label(event.path))

    def _map_stopped(self, event: Event) -> None:
        self.reason = f"it stopped at item {event.data.get('at')} ({event.data.get('reason')})"

    def _map_ended(self, event: Event) -> None:
        self._close_map(event.path)

    def _item_read(self, event: Event) -> None:
        self.read += events.count_read(event)

    def _items_complete(self, _: Event) -> None:
        self.complete = True

    def _item_queued(self, event: Event) -> None:
        if event.path not in self._waiting and event.path not in self._places:
            self._wait(event)

    def _item_started(self, event: Event) -> None:
        if event.path in self._places:
            self._end(event.path, CRASHED)
        lane = self._lane(event)
        since = self._stop_waiting(event.path) if event.path in self._waiting else self.now
        key, attempt = unescape(event.path.rpartition("/")[2]), event.data.get("attempt", 1)
        bar = LaneBar(
            key, RUNNING, since, self.now, self.now, attempt if isinstance(attempt, int) else 1
        )
        place = lane.take()
        lane.rows[place].start(bar)
        lane.counts.running += 1
        lane.newest.append(event.path)
        self._places[event.path] = (lane, place)
        self.peak = max(self.peak, len(self._places))
        self._map(event.path).members.add(event.path)

    def _attempt_failed(self, event: Event) -> None:
        if event.path in self._places:
            self._end(event.path, RETRIED)
        self._lane(event).counts.retried += 1
        self._item_queued(event)

    def _item_settled(self, event: Event) -> None:
        path, lane = event.path, self._lane(event)
        state = next(
            (known for known in (DONE, CANCELLED) if event.data.get("state") == known), FAILED
        )
        if path in self._places:
            self._end(path, state)
        else:
            self._brief(event, lane, state)
        if path in self._waiting:
            self._stop_waiting(path)
        self._map(path).members.discard(path)
        self._count(
            path, lane, SPECULATIVE if state == DONE and event.data.get("speculative") else state
        )
        second = int(self.now)
        if not self._recent or self._recent[-1][0] != second:
            self._recent.append([second, 0])
        self._recent[-1][1] += 1

    def _call_settled(self, event: Event) -> None:
        """Count the usage of a call.

        Usage is not counted by items, since that of a nested item is also in the item around it.
        """
        if event.data.get("state") != CANCELLED:
            self.usage += usage_of(event.data)

    def _brief(self, event: Event, lane: LaneRows, state: str) -> None:
        """Add an item so short that its start was not recorded; its end says how long it took."""
        service = event.data.get("service")
        if not isinstance(service, list) or not service:
            return
        start = self.now - float(service[-1])
        since = self._stop_waiting(event.path) if event.path in self._waiting else start
        place = lane.take_since(start)
        key = unescape(event.path.rpartition("/")[2])
        lane.keep(
            place,
            LaneBar(key, state, min(since, start), start, self.now, len(service)),
            self._grain,
        )
        lane.rows[place].free_since = self.now
        lane.give(place)
        self.peak = max(self.peak, len(self._places), place + 1)

    # --- bookkeeping ------------------------------------------------------------------------------

    @property
    def _grain(self) -> float:
        return self.window / _GRAINS

    def _count(self, path: str, lane: LaneRows, state: str) -> None:
        """Count an outcome, in place of an earlier one of the same item.

        An item that failed or was cancelled may be run again.
        """
        mark = hash(path)
        before = self._unsettled.pop(mark, None)
        if before is not None:
            before[0].counts.change(before[1], -1)
            self.settled -= 1
        lane.counts.change(state, 1)
        self.settled += 1
        if state in (FAILED, CANCELLED) and len(self._unsettled) < _MAX_UNSETTLED:
            self._unsettled[mark] = (lane, state)

    def _wait(self, event: Event) -> None:
        lane = self._lane(event)
        lane.counts.waiting += 1
        lane.waiting.change(1, self.now, self._grain)
        self._waiting[event.path] = (lane, self.now)
        self._map(event.path).members.add(event.path)

    def _stop_waiting(self, path: str) -> float:
        """End an item's waiting; return the time since when it waited."""
        lane, since = self._waiting.pop(path)
        lane.counts.waiting -= 1
        lane.waiting.change(-1, self.now, self._grain)
        steps = lane.waiting.steps
        while not self.whole and len(steps) > 1 and steps[1][0] < self.now - self.window:
            steps.popleft()
        return since

    def _end(self, path: str, state: str) -> None:
        """End a running attempt."""
        lane, place = self._places.pop(path)
        row = lane.rows[place]
        bar = row.stop(self.now)
        lane.counts.running -= 1
        if bar is not None:
            lane.keep(place, replace(bar, state=state, end=self.now), self._grain)
        while not self.whole and row.bars and row.bars[0].end < self.now - self.window:
            row.bars.popleft()
        if not self._move_successor(lane, place):
            lane.give(place)

    def _move_successor(self, lane: LaneRows, place: int) -> bool:
        """Move an attempt that has just started into the row that was freed for it.

        Returns False if there is no such attempt.
        """
        others = [
            (self._places[path][1], path)
            for path in lane.newest
            if self._places.get(path, (None,))[0] is lane
        ]
        last, path = max(others, default=(0, ""))
        bar = lane.rows[last].running
        if last <= place or bar is None or self.now - bar.start > INSTANT:
            return False
        lane.rows[last].running = None
        lane.give(last)
        lane.rows[place].start(bar)
        self._places[path] = (lane, place)
        return True

    def _close_map(self, path: str) -> None:
        """End a map: its running items are cancelled, and its waiting items stop waiting."""
        closed = self._maps.pop(path, None)
        for member in closed.members if closed else ():
            if member in self._places:
                self._end(member, CANCELLED)
            if member in self._waiting:
                self._stop_waiting(member)

    def _map(self, path: str) -> _Map:
        """The map that an item belongs to; a step counts as a map of its own name."""
        above = path.rpartition("/")[0] or path
        found = self._maps.get(path) or self._maps.get(above)
        if found is None:
            found = self._maps[above] = _Map(self._label(above))
        return found

    def _label(self, path: str) -> str:
        """The map's path without its run.

        The maps beneath all items of another map share one label.
        """
        root, _, label = path.partition("/")
        above = path.rpartition("/")[0]
        while above and above not in self._places:
            above = above.rpartition("/")[0]
        return f"{self._map(above).label}/*{path.removeprefix(above)}" if above else label or root

    def _lane(self, event: Event) -> LaneRows:
        name = event.lane if event.lane is not None else self._map(event.path).label
        if name not in self.strips and len(self.strips) >= _MAX_LANES:
            name = OTHERS
        return self.strips.setdefault(name, LaneRows(name))

    _HANDLERS: ClassVar[dict[str, Callable[[LaneChart, Event], None]]] = {
        events.RUN_STARTED: _run_started,
        events.RUN_RESUMED: _run_resumed,
        events.RUN_ENDED: _run_ended,
        events.MAP_STARTED: _map_started,
        events.MAP_STOPPED: _map_stopped,
        events.MAP_ENDED: _map_ended,
        events.ITEM_READ: _item_read,
        events.ITEMS_COMPLETE: _items_complete,
        events.ITEM_QUEUED: _item_queued,
        events.ITEM_STARTED: _item_started,
        events.ATTEMPT_FAILED: _attempt_failed,
        events.ITEM_SETTLED: _item_settled,
        events.CALL_SETTLED: _call_settled,
    }
    KINDS: ClassVar = frozenset(_HANDLERS)

"""The fold from events to lanes: which items wait and run, in which lane, and how they end.

Its only input is the events, in order, so an old run and a live one are the same to it. Its time is
the time that the run was driven: the time between a crash and the resume is left out, and marked by
a seam. `LaneChart` (terminal) and `RunView` (page) add what they keep of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from abreast.core import events
from abreast.core.events import Event
from abreast.core.item import unescape
from abreast.views.driven_time import DrivenTime
from abreast.views.job_view import listed, number, whole
from abreast.views.lane_rows import (
    CANCELLED,
    CRASHED,
    DONE,
    FAILED,
    RETRIED,
    RUNNING,
    SPECULATIVE,
    Lane,
    LaneBar,
)
from abreast.views.progress import BatchCounts, Costs, LastSteps

OTHERS: Final = "others"
_MAX_LANES: Final = 64  # shown separately; all further ones are shown as one

AnyLane = TypeVar("AnyLane", bound=Lane[Any])


class LaneFold(ABC, Generic[AnyLane]):
    """The lanes of one run so far, computed from events of the `KINDS`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.time = DrivenTime()
        self.state, self.reason = RUNNING, ""
        self.lanes: dict[str, AnyLane] = {}
        self.seams: list[float] = []
        self.read = 0
        self.total: int | None = None
        self.costs = Costs()
        self.batches = BatchCounts()
        self.agents = LastSteps()
        self._open: dict[str, AnyLane] = {}  # the lane of each item that waits or runs
        self._maps: dict[str, str] = {}  # the label of each map that has not ended

    def add(self, event: Event) -> None:
        """Add the next event."""
        if (handle := self._HANDLERS.get(event.kind)) is not None:
            self._advance(self.time.take(event))
            handle(self, event)

    def cut(self) -> None:
        """End everything that waits or runs as crashed: the driver is gone."""
        self.state = CRASHED
        self._abandon_all(CRASHED)

    # --- what the terminal and the page add -------------------------------------------------------

    @abstractmethod
    def _make_lane(self, name: str) -> AnyLane:
        """A new lane of this name."""

    def _advance(self, now: float) -> None:
        self.now = now

    def _resumed(self) -> None:
        """A new driver goes on; it uses what ended after an interrupt."""

    def _began(self, lane: AnyLane, bar: LaneBar) -> None:
        """An attempt has started."""

    def _retried(self, event: Event, lane: AnyLane) -> None:
        """An attempt has failed and is retried."""

    def _settled(self, event: Event, lane: AnyLane, state: str) -> None:
        """An item has its outcome."""

    def _abandon(self, path: str, state: str) -> None:
        """An item has ended without an outcome: its driver is gone, or its map has ended."""
        self.agents.end(path)
        self._leave(path, state)

    # --- runs and maps ----------------------------------------------------------------------------

    def _run_started(self, event: Event) -> None:
        if event.kind == events.RUN_RESUMED:
            self._abandon_all(CRASHED)
            self._resumed()
            self.seams.append(self.now)
        self.state, self.reason = RUNNING, ""

    def _run_ended(self, event: Event) -> None:
        self._abandon_all(CANCELLED)
        self.state = str(event.data.get("state", DONE))
        self.reason = str(event.data.get("reason") or self.reason)

    def _map_started(self, event: Event) -> None:
        self._maps[event.path] = self._label(event.path)

    def _map_stopped(self, event: Event) -> None:
        self.reason = f"it stopped at item {event.data.get('at')} ({event.data.get('reason')})"

    def _map_ended(self, event: Event) -> None:
        for path in [path for path in self._open if self._map_path(path) == event.path]:
            self._abandon(path, CANCELLED)
        self._maps.pop(event.path, None)

    def _item_read(self, event: Event) -> None:
        self.read += events.count_read(event)

    def _items_complete(self, event: Event) -> None:
        self.total = (self.total or 0) + (whole(event.data.get("items")) or 0)

    # --- items ------------------------------------------------------------------------------------

    def _item_queued(self, event: Event) -> None:
        if event.path not in self._open:
            lane = self._open[event.path] = self._lane(event)
            lane.wait(event.path, self.now)

    def _item_started(self, event: Event) -> None:
        since = self._leave(event.path, CRASHED)
        lane = self._open[event.path] = self._lane(event)
        start = self.time.of(event)  # recorded only if it ran for a while
        bar = LaneBar(
            event.path,
            RUNNING,
            start if since is None else min(since, start),
            start,
            self.now,
            whole(event.data.get("attempt")) or 1,
        )
        lane.begin(bar)
        self._began(lane, bar)

    def _attempt_failed(self, event: Event) -> None:
        self.agents.end(event.path)
        self._leave(event.path, RETRIED)
        self._retried(event, self._lane(event))
        self._item_queued(event)

    def _item_settled(self, event: Event) -> None:
        lane = self._open.get(event.path) or self._lane(event)
        state = outcome_state(event.data)
        ran = event.path in lane.running
        since = self._leave(event.path, state)
        self.agents.end(event.path)
        if not ran and event.data.get("service"):
            bar = self._brief_bar(event.path, event.data, since)
            self._began(lane, bar)
            lane.brief(bar)
        self._settled(event, lane, state)

    def _call_settled(self, event: Event) -> None:
        self.costs.add(event.data)
        self.batches.add(event)

    def _agent_step(self, event: Event) -> None:
        # The start of an item may be recorded after its first step: it is not, if it ends at once.
        self.agents.add(event)

    def _batch(self, event: Event) -> None:
        self.batches.add(event)

    def _brief_bar(self, path: str, data: Mapping[str, Any], since: float | None) -> LaneBar:
        """The bar of what is known by its end only, which says how long it took and waited."""
        took = [number(part) or 0.0 for part in listed(data.get("service"))]
        start = max(0.0, self.now - (took[-1] if took else 0.0))
        waited = start - (number(data.get("waited")) or 0.0) if since is None else since
        since = max(0.0, min(waited, start))
        return LaneBar(path, outcome_state(data), since, start, self.now, len(took))

    def _leave(self, path: str, state: str) -> float | None:
        """End an item's attempt or its waiting; return the time since when it waited."""
        lane = self._open.pop(path, None)
        if lane is None:
            return None
        if path in lane.waiting:
            return lane.stop_waiting(path, self.now)
        lane.end(path, self.now, state)
        return None

    def _abandon_all(self, state: str) -> None:
        for path in list(self._open):
            self._abandon(path, state)
        self.agents.clear()
        self._maps.clear()

    # --- names ------------------------------------------------------------------------------------

    def _lane(self, event: Event, prefix: str = "") -> AnyLane:
        name = f"{prefix}{self._map_label(event.path) if event.lane is None else event.lane}"
        if name not in self.lanes:
            if len(self.lanes) >= _MAX_LANES:
                name = OTHERS
            if name not in self.lanes:
                self.lanes[name] = self._make_lane(name)
        return self.lanes[name]

    def _map_path(self, path: str) -> str:
        """The path of the map that an item belongs to; a step counts as a map of its own name."""
        return path if path in self._maps else path.rpartition("/")[0] or path

    def _map_label(self, path: str) -> str:
        found = self._map_path(path)
        if found not in self._maps:
            self._maps[found] = self._label(found)
        return self._maps[found]

    def _label(self, path: str) -> str:
        """The map's path without its run; the maps beneath all items of another share a label."""
        root, _, label = path.partition("/")
        above = path.rpartition("/")[0]
        while above:
            if above in self._open and above not in self._maps:
                return f"{self._map_label(above)}/*{unescape(path.removeprefix(above))}"
            above = above.rpartition("/")[0]
        return unescape(label or root)

    _HANDLERS: ClassVar[dict[str, Callable[[Any, Event], None]]] = {
        events.RUN_STARTED: _run_started,
        events.RUN_RESUMED: _run_started,
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
        events.BATCH_GATHERED: _batch,
        events.BATCH_SUBMITTED: _batch,
        events.BATCH_ENDED: _batch,
        events.AGENT_STEP: _agent_step,
    }
    KINDS: ClassVar = frozenset(_HANDLERS)


def outcome_state(data: Mapping[str, Any]) -> str:
    """The state of an outcome; `speculative` if it was done past the stop of its map."""
    state = data.get("state")
    if state == DONE:
        return SPECULATIVE if data.get("speculative") else DONE
    return CANCELLED if state == CANCELLED else FAILED

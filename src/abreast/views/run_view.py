"""The web page's view of a run: events folded into lanes, items, errors and spending.

Its only input is the events, in order, so an old run and a live one are the same to it. Its time is
the time that the run was driven: the time between a crash and the resume is left out, and marked by
a seam.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from abreast.core import events
from abreast.core.driven_time import DrivenTime
from abreast.core.events import Event
from abreast.core.item import unescape
from abreast.views.attempts import (
    CANCELLED,
    CRASHED,
    DONE,
    FAILED,
    RETRIED,
    RUNNING,
    SPECULATIVE,
    AttemptBar,
    AttemptLane,
)
from abreast.views.failures import FailureKinds
from abreast.views.items import Items

_MAX_LANES: Final = 64  # shown separately; all further ones are shown as one
_OTHERS: Final = "others"
_MAX_DECISIONS: Final = 2000  # kept of a lane, the newest


class RunView:
    """One run so far, computed from events of the `KINDS`."""

    def __init__(self) -> None:
        """Start before the first event."""
        self.seq = 0
        self.now = 0.0
        self.time = DrivenTime()
        self.state, self.reason = "running", ""
        self.lanes: dict[str, AttemptLane] = {}
        self.items = Items()
        self.errors = FailureKinds()
        self.seams: list[float] = []
        self.total: int | None = None
        self.read = 0
        self.width = 0
        self.timing_dependent: set[str] = set()
        self.spent: dict[str, array[float]] = {
            name: array("d") for name in ("at", "usd", "input", "output")
        }
        self.models: dict[str, dict[str, float]] = {}
        self.unpriced = 0
        self._maps: dict[str, str] = {}

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.seq = event.seq
        handle = self._HANDLERS.get(event.kind)
        if handle is None:
            return
        self.now = self.time.take(event)
        handle(self, event)

    def cut(self) -> None:
        """End everything that waits or runs as crashed: the driver is gone."""
        self.state = "crashed"
        self._end_all(CRASHED)

    def _end_all(self, state: int) -> None:
        for lane in self.lanes.values():
            lane.waiting.clear()
            for path in list(lane.running):
                self.items.end(lane.running[path].bar.item, state, self.now)
                lane.finish(path, self.now, state)

    # --- runs and maps ----------------------------------------------------------------------------

    def _run_started(self, event: Event) -> None:
        if event.kind == events.RUN_RESUMED:
            self._end_all(CRASHED)
            self.items.take_up()  # the next driver uses what ended after an interrupt
            self.seams.append(self.now)
        self.state, self.reason = "running", ""

    def _run_ended(self, event: Event) -> None:
        self._end_all(CANCELLED)
        self.state, self.reason = (
            str(event.data.get("state", "done")),
            str(event.data.get("reason") or self.reason),
        )

    def _map_started(self, event: Event) -> None:
        self._maps[event.path] = self._label(event.path)
        width = event.data.get("width")
        self.width = max(self.width, width if isinstance(width, int) else 0)

    def _map_stopped(self, event: Event) -> None:
        self.reason = f"it stopped at item {event.data.get('at')} ({event.data.get('reason')})"

    def _map_ended(self, event: Event) -> None:
        self.timing_dependent.update(
            filter(None, str(event.data.get("timing_dependent") or "").split(","))
        )

    def _item_read(self, event: Event) -> None:
        self.read += events.count_read(event)

    def _items_complete(self, event: Event) -> None:
        count = event.data.get("items")
        self.total = (self.total or 0) + (count if isinstance(count, int) else 0)

    # --- items ------------------------------------------------------------------------------------

    def _item_queued(self, event: Event) -> None:
        self._lane(event).waiting[event.path] = self.now

    def _item_started(self, event: Event) -> None:
        lane = self._lane(event)
        if event.path in lane.running:
            lane.finish(event.path, self.now, CRASHED)
        since = lane.waiting.pop(event.path, self.now)
        item = self.items.begin(event.path, lane.name, since, self.now)
        lane.begin(event.path, AttemptBar(since, self.now, self.now, RUNNING, item))

    def _attempt_failed(self, event: Event) -> None:
        lane = self._lane(event)
        if event.path in lane.running:
            lane.finish(event.path, self.now, RETRIED)
        self.errors.add(event, retried=True)
        lane.waiting[event.path] = self.now

    def _item_settled(self, event: Event) -> None:
        lane, data = self._lane(event), event.data
        state = _state(data)
        took = _numbers(data.get("service"))
        since = lane.waiting.pop(event.path, None)
        if event.path in lane.running:
            lane.finish(event.path, self.now, state)
        elif took:
            start = max(0.0, self.now - took[-1])
            waited = start - _number(data.get("waited")) if since is None else since
            item = self.items.begin(event.path, lane.name, waited, start)
            lane.brief(AttemptBar(max(0.0, min(waited, start)), start, self.now, state, item))
        error = self.errors.add(event) if state == FAILED else -1
        self.items.settle(event, lane.name, state, self.now, error)

    # --- calls of models, and limits --------------------------------------------------------------

    def _call_settled(self, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        lane = self._lane(event, calls=True)
        took = _numbers(data.get("service"))
        start = max(0.0, self.now - (took[-1] if took else 0.0))
        since = max(0.0, start - _number(data.get("waited")))
        item = self.items.find(event.path.rpartition("/call/")[0])
        lane.brief(AttemptBar(since, start, self.now, _state(data), item))
        if data.get("state") != "cancelled":  # it holds a reservation, not a known usage
            self._spend(data)

    def _spend(self, data: Mapping[str, Any]) -> None:
        used = {
            "requests": _number(data.get("requests")),
            "usd": _number(data.get("usd")),
            "input": _number(data.get("input_tokens")),
            "output": _number(data.get("output_tokens")),
        }
        self.unpriced += data.get("usd", 0) is None
        self.spent["at"].append(self.now)
        for name in ("usd", "input", "output"):
            self.spent[name].append(used[name])
        total = self.models.setdefault(str(data.get("model", "")), dict.fromkeys(used, 0.0))
        for name, value in used.items():
            total[name] += value

    def _limit_changed(self, event: Event) -> None:
        lane, data = self._lane(event, calls=True), event.data
        new = data.get("new")
        if data.get("dimension") == "concurrency" and isinstance(new, (int, float)):
            old = data.get("old")
            if not lane.limits and isinstance(old, (int, float)):
                lane.limits.append((0.0, float(old)))
            lane.limits.append((self.now, float(new)))
        lane.decisions.append({"at": round(self.now, 4), **data})
        del lane.decisions[:-_MAX_DECISIONS]

    # --- names ------------------------------------------------------------------------------------

    def _lane(self, event: Event, *, calls: bool = False) -> AttemptLane:
        name = event.lane if event.lane is not None else self._map_of(event.path)
        key = f"calls · {name}" if calls else name
        found = self.lanes.get(key)
        if found is None:
            if len(self.lanes) >= _MAX_LANES:
                key = _OTHERS
            found = self.lanes.setdefault(key, AttemptLane(key, calls))
        return found

    def _map_of(self, path: str) -> str:
        """The name of the map that an item belongs to; the steps of one scope share a lane."""
        above = path.rpartition("/")[0] or path
        found = self._maps.get(path) or self._maps.get(above)
        if found is None:
            found = self._maps[above] = self._label(above)
        return found

    def _label(self, path: str) -> str:
        """The map's path without its run; the maps beneath all items of another share a label."""
        root, _, label = path.partition("/")
        above = path.rpartition("/")[0]
        while above:
            parent = self._maps.get(above.rpartition("/")[0])
            if parent is not None and above not in self._maps and self.items.find(above) >= 0:
                return f"{parent}/*{unescape(path.removeprefix(above))}"
            above = above.rpartition("/")[0]
        return unescape(label or root)

    _HANDLERS: ClassVar[dict[str, Callable[[RunView, Event], None]]] = {
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
        events.LIMIT_CHANGED: _limit_changed,
    }
    KINDS: ClassVar = frozenset(_HANDLERS)
    ENOUGH: ClassVar = KINDS - {events.ITEM_QUEUED, events.ITEM_READ}
    """The kinds that suffice for a run that has ended: its outcomes say how long items waited."""


def _state(data: Mapping[str, Any]) -> int:
    state = data.get("state")
    if state == "done":
        return SPECULATIVE if data.get("speculative") else DONE
    return CANCELLED if state == "cancelled" else FAILED


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _numbers(value: object) -> list[float]:
    return [_number(part) for part in value] if isinstance(value, list) else []

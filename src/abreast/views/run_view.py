"""The web page's view of a run: all its attempts in lanes, its items, errors and spending.

Bars are kept in columns (arrays), so that 100,000 of them need little memory.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

from abreast.core import events
from abreast.core.events import Event
from abreast.views.items import FailureKinds, Items
from abreast.views.job_view import whole
from abreast.views.lane_fold import LaneFold
from abreast.views.lane_rows import FAILED, SEVERITY, STATES, Lane, LaneBar, LaneRow
from abreast.views.limits import LimitChanges

CALLS: Final = "calls · "
"""What the name of a lane of model calls begins with."""


class AttemptRow(LaneRow):
    """A row that keeps all its bars, in columns."""

    def __init__(self, find: Callable[[str], int]) -> None:
        """Start free; `find` gives the index of an item."""
        super().__init__()
        self._find = find
        self.since, self.start, self.end = array("d"), array("d"), array("d")
        self.state, self.item = bytearray(), array("l")
        self._waits = array("d")

    def __len__(self) -> int:
        return len(self.end)

    def keep(self, bar: LaneBar) -> None:
        """Add a bar that has ended."""
        start = max(bar.start, self.free_since)
        self.since.append(min(bar.since, start))
        self.start.append(start)
        self.end.append(max(bar.end, start))
        self.state.append(SEVERITY[bar.state])
        self.item.append(self._find(bar.path))
        self.free_since = self.end[-1]

    def waits(self) -> "array[float]":
        """The times since when its bars waited, sorted; kept until there are more bars."""
        if len(self._waits) != len(self.since):
            self._waits = array("d", sorted(self.since))
        return self._waits

    def between(
        self, begin: float, finish: float, now: float
    ) -> Iterator[tuple[float, float, float, int, int]]:
        """The bars that waited or ran within a period, in order; the running one ends `now`."""
        at = bisect_left(self.end, begin)
        columns = (self.since, self.start, self.end, self.state, self.item)
        for values in zip(*(column[at:] for column in columns), strict=True):
            if values[0] > finish:
                break
            yield values
        if (bar := self.running) is not None and bar.start <= finish:
            yield bar.since, bar.start, now, SEVERITY[bar.state], self._find(bar.path)


class AttemptLane(Lane[AttemptRow]):
    """A lane of the page, with the changes of its limit."""

    def __init__(self, name: str, find: Callable[[str], int]) -> None:
        super().__init__(name, lambda: AttemptRow(find))
        self.limits = LimitChanges()

    @property
    def counts(self) -> dict[str, int]:
        """How many attempts ended in each state."""
        return {
            state: sum(row.state.count(place) for row in self.rows)
            for place, state in enumerate(STATES)
        }


class RunView(LaneFold[AttemptLane]):
    """One run so far, with everything that its page shows."""

    def __init__(self) -> None:
        super().__init__()
        self.items = Items()
        self.errors = FailureKinds()
        self.width = 0
        self.timing_dependent: set[str] = set()
        self.spent: dict[str, array[float]] = {
            name: array("d") for name in ("at", "usd", "input", "output")
        }

    def _make_lane(self, name: str) -> AttemptLane:
        return AttemptLane(name, self.items.find)

    def _resumed(self) -> None:
        self.items.take_up()

    def _began(self, lane: AttemptLane, bar: LaneBar) -> None:
        self.items.begin(bar.path, lane.name, bar.since, bar.start)

    def _retried(self, event: Event, lane: AttemptLane) -> None:  # noqa: ARG002 - counted by kind
        self.errors.add(event, retried=True)

    def _settled(self, event: Event, lane: AttemptLane, state: str) -> None:
        self.items.settle(
            event, lane.name, state, self.now, self.errors.add(event) if state == FAILED else -1
        )

    def _abandon(self, path: str, state: str) -> None:
        self.items.end(path, state, self.now)
        super()._abandon(path, state)

    def _map_started(self, event: Event) -> None:
        super()._map_started(event)
        self.width = max(self.width, whole(event.data.get("width")) or 0)

    def _map_ended(self, event: Event) -> None:
        super()._map_ended(event)
        self.timing_dependent.update(
            filter(None, str(event.data.get("timing_dependent") or "").split(","))
        )

    def _call_settled(self, event: Event) -> None:
        self.batches.add(event)
        item = event.path.rpartition("/call/")[0]
        self._lane(event, CALLS).brief(self._brief_bar(item, event.data, None))
        if used := self.costs.add(event.data):
            self.spent["at"].append(self.now)
            for name in ("usd", "input", "output"):
                self.spent[name].append(used[name])

    def _limit_changed(self, event: Event) -> None:
        self._lane(event, CALLS).limits.add(self.now, event.data)

    _HANDLERS: ClassVar[dict[str, Callable[[Any, Event], None]]] = {
        **LaneFold._HANDLERS,  # noqa: SLF001 - its own base
        events.MAP_STARTED: _map_started,
        events.MAP_ENDED: _map_ended,
        events.CALL_SETTLED: _call_settled,
        events.LIMIT_CHANGED: _limit_changed,
    }
    KINDS: ClassVar = frozenset(_HANDLERS)
    ENOUGH: ClassVar = KINDS - {events.ITEM_QUEUED, events.ITEM_READ}
    """The kinds that suffice for a run that has ended: its outcomes say how long items waited."""

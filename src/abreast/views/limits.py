"""What limits did over time, folded from a run's events: calls in flight, how many were allowed, and each decision."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core import events
from abreast.core.driven_time import DrivenTime
from abreast.core.events import Event
from abreast.views.lane_rows import CRASHED, RUNNING, LaneLevel

CONCURRENCY: Final = "concurrency"
_SHORTEST: Final = 0.25  # seconds; the window of a whole run grows with it from here
_GRAINS: Final = 1000  # what is shorter than this part of the window can't be seen by itself
_KEPT: Final = 2000  # decisions of a lane


@dataclass(frozen=True, slots=True)
class Decision:
    """Something that is allowed otherwise than before, in the run's own time."""

    at: float
    dimension: str
    old: float | None
    new: float | None
    cause: str
    held: float | None = None

    @classmethod
    def of(cls, at: float, data: Any) -> Decision:  # noqa: ANN401 - of an event
        """As an event tells it."""
        numbers = {name: _number(data.get(name)) for name in ("old", "new", "held")}
        return cls(
            at,
            str(data.get("dimension") or data.get("limit") or "?"),
            cause=str(data.get("cause")),
            **numbers,
        )

    def spoken(self) -> str:
        """In words."""
        if self.cause == "quota":
            return "the quota is used up: the lane is parked"
        change = f" {_shown(self.old)} -> {_shown(self.new)}" if self.new is not None else ""
        held = f", held for {self.held:.3g} s" if self.held else ""
        return f"{self.dimension}{change} ({self.cause}{held})"


@dataclass(slots=True)
class CallFlow:
    """One lane's calls and decisions."""

    name: str
    flying: LaneLevel = field(default_factory=LaneLevel)
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=_KEPT))
    calls: int = 0
    peak: int = 0
    rejections: int = 0
    paths: set[str] = field(default_factory=set)

    def allowed(self, dimension: str) -> float | None:
        """What was last decided."""
        told = (
            each.new
            for each in reversed(self.decisions)
            if each.dimension == dimension and each.new is not None
        )
        return next(told, None)


class LimitChart:
    """The limits of one run so far, made of events of the `KINDS`.

    Its time is that of `abreast.views.lanes.Chart`.
    """

    KINDS: ClassVar = frozenset(
        {
            events.RUN_STARTED,
            events.RUN_RESUMED,
            events.RUN_ENDED,
            events.CALL_STARTED,
            events.CALL_SETTLED,
            events.LIMIT_CHANGED,
        }
    )

    def __init__(self, window: float = 60.0, *, whole: bool = False) -> None:
        """Nothing has happened yet."""
        self.window = _SHORTEST if whole else window
        self.whole = whole
        self.now = 0.0
        self.state, self.reason = RUNNING, ""
        self.flows: dict[str, CallFlow] = {}
        self._time = DrivenTime()

    def at(self, wall: float) -> float:
        """The picture's time at a time of day, while the run is driven."""
        return self._time.at(wall)

    def cut(self) -> None:
        """The driver is gone, and with it all that was in flight."""
        self.state = CRASHED
        for flow in self.flows.values():
            self._fly(flow, -len(flow.paths))
            flow.paths.clear()

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind not in self.KINDS:
            return
        self.now = self._time.take(event)
        while self.whole and self.now > self.window:
            self.window *= 2
        if event.kind in (events.RUN_STARTED, events.RUN_RESUMED):
            self.cut()
            self.state = RUNNING
        elif event.kind == events.RUN_ENDED:
            self.state = str(event.data.get("state"))
        elif event.lane is not None:
            self._add_to(self.flows.setdefault(event.lane, CallFlow(event.lane)), event)

    def _add_to(self, flow: CallFlow, event: Event) -> None:
        if event.kind == events.CALL_STARTED:
            if event.path not in flow.paths:
                flow.paths.add(event.path)
                self._fly(flow, 1)
        elif event.kind == events.CALL_SETTLED:
            flow.calls += 1
            self._land(flow, [event.path])
        else:
            decision = Decision.of(self.now, event.data)
            flow.decisions.append(decision)
            if decision.cause == "429":
                flow.rejections += 1
                # What was turned away is in flight no more; it starts again.
                self._land(flow, [path for path in flow.paths if path.startswith(f"{event.path}/")])

    def _land(self, flow: CallFlow, paths: list[str]) -> None:
        landed = flow.paths.intersection(paths)
        flow.paths -= landed
        if landed:
            self._fly(flow, -len(landed))

    def _fly(self, flow: CallFlow, by: int) -> None:
        flow.flying.change(by, self.now, self.window / _GRAINS)
        flow.peak = max(flow.peak, flow.flying.value)


def _number(told: object) -> float | None:
    return float(told) if isinstance(told, (int, float)) and not isinstance(told, bool) else None


def _shown(number: float | None) -> str:
    return "?" if number is None else f"{number:,.0f}" if number >= 10 else f"{number:.3g}"  # noqa: PLR2004 - small

"""The limits of a run over time: calls in flight, how many were allowed, and each decision."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core import events
from abreast.core.driven_time import DrivenTime
from abreast.core.events import Event
from abreast.views.lane_rows import CRASHED, RUNNING, LaneLevel

CONCURRENCY: Final = "concurrency"
_FIRST_WINDOW: Final = 0.25  # seconds; the window of a whole run grows with it from here
_GRAINS: Final = 1000  # per window: changes within one grain are one step
_MAX_DECISIONS: Final = 2000  # kept of a lane, the newest


@dataclass(frozen=True, slots=True)
class Decision:
    """A change of a limit, in the run's own time."""

    at: float
    dimension: str
    old: float | None
    new: float | None
    cause: str
    held: float | None = None

    @classmethod
    def of(cls, at: float, data: Any) -> Decision:  # noqa: ANN401 - of an event
        """The decision that an event records."""
        numbers = {name: _number(data.get(name)) for name in ("old", "new", "held")}
        return cls(
            at,
            str(data.get("dimension") or data.get("limit") or "?"),
            cause=str(data.get("cause")),
            **numbers,
        )

    def spoken(self) -> str:
        """The decision as a sentence."""
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
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=_MAX_DECISIONS))
    calls: int = 0
    peak: int = 0
    rejections: int = 0
    paths: set[str] = field(default_factory=set)

    def allowed(self, dimension: str) -> float | None:
        """The limit that was decided last."""
        limits = (
            each.new
            for each in reversed(self.decisions)
            if each.dimension == dimension and each.new is not None
        )
        return next(limits, None)


class LimitChart:
    """The limits of one run so far, computed from events of the `KINDS`.

    Its time is that of `abreast.views.lanes.LaneChart`.
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
        """Start before the first event."""
        self.window = _FIRST_WINDOW if whole else window
        self.whole = whole
        self.now = 0.0
        self.state, self.reason = RUNNING, ""
        self.flows: dict[str, CallFlow] = {}
        self._time = DrivenTime()

    def at(self, wall: float) -> float:
        """The run's own time at a wall-clock time, while the run is driven."""
        return self._time.at(wall)

    def cut(self) -> None:
        """End all calls in flight: the driver is gone."""
        self.state = CRASHED
        for flow in self.flows.values():
            self._change_in_flight(flow, -len(flow.paths))
            flow.paths.clear()

    def add(self, event: Event) -> None:
        """Add the next event."""
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
                self._change_in_flight(flow, 1)
        elif event.kind == events.CALL_SETTLED:
            flow.calls += 1
            self._end_calls(flow, [event.path])
        else:
            decision = Decision.of(self.now, event.data)
            flow.decisions.append(decision)
            if decision.cause == "429":
                flow.rejections += 1
                # A rejected call is no longer in flight; it starts again.
                self._end_calls(
                    flow, [path for path in flow.paths if path.startswith(f"{event.path}/")]
                )

    def _end_calls(self, flow: CallFlow, paths: list[str]) -> None:
        ended = flow.paths.intersection(paths)
        flow.paths -= ended
        if ended:
            self._change_in_flight(flow, -len(ended))

    def _change_in_flight(self, flow: CallFlow, by: int) -> None:
        flow.flying.change(by, self.now, self.window / _GRAINS)
        flow.peak = max(flow.peak, flow.flying.value)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _shown(number: float | None) -> str:
    return "?" if number is None else f"{number:,.0f}" if number >= 10 else f"{number:.3g}"  # noqa: PLR2004 - small

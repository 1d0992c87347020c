"""The limits of a run over time: calls in flight, how many were allowed, and each decision."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from abreast.core import events
from abreast.core.events import Event
from abreast.views.driven_time import DrivenTime
from abreast.views.job_view import number
from abreast.views.lane_rows import CRASHED, RUNNING, LaneLevel, TimeWindow

CONCURRENCY: Final = "concurrency"
_GRAINS: Final = 1000  # per window: changes within one grain are one step
_MAX_DECISIONS: Final = 2000  # kept of a lane, the newest


class Decision:
    """A change of a limit, in the run's own time, as it was recorded (`data`)."""

    def __init__(self, at: float, data: Mapping[str, Any]) -> None:
        """Read what is limited, how the limit changed and why, and how long the lane is held."""
        self.at, self.data = at, data
        self.dimension = str(data.get("dimension") or data.get("limit") or "?")
        self.old, self.new, self.held = (number(data.get(name)) for name in ("old", "new", "held"))
        self.cause = str(data.get("cause"))

    def plain(self) -> dict[str, object]:
        """The decision in JSON's own types."""
        return {
            name: getattr(self, name) for name in ("at", "dimension", "old", "new", "cause", "held")
        }

    def spoken(self) -> str:
        """The decision as a sentence."""
        if self.cause == "quota":
            return "the quota is used up: the lane is parked"
        change = f" {_shown(self.old)} -> {_shown(self.new)}" if self.new is not None else ""
        held = f", held for {self.held:.3g} s" if self.held else ""
        return f"{self.dimension}{change} ({self.cause}{held})"


class LimitChanges:
    """The decisions on one lane's limits, and how many calls at once were allowed over time."""

    def __init__(self) -> None:
        self.decisions: deque[Decision] = deque(maxlen=_MAX_DECISIONS)
        self.steps: list[tuple[float, float]] = []
        self.rejections = 0

    def add(self, at: float, data: Mapping[str, Any]) -> Decision:
        """Add the next decision."""
        decision = Decision(at, data)
        self.decisions.append(decision)
        self.rejections += decision.cause == "429"
        if decision.dimension == CONCURRENCY and decision.new is not None:
            if not self.steps and decision.old is not None:
                self.steps.append((0.0, float(decision.old)))
            self.steps.append((at, float(decision.new)))
        return decision

    def allowed(self, dimension: str) -> float | None:
        """The limit that was decided last."""
        limits = (
            each.new
            for each in reversed(self.decisions)
            if each.dimension == dimension and each.new is not None
        )
        return next(limits, None)


class CallFlow(LimitChanges):
    """One lane's calls in flight, and the decisions on its limits."""

    def __init__(self, name: str, window: TimeWindow) -> None:
        super().__init__()
        self.name = name
        self.flying = LaneLevel(window)
        self.calls = self.peak = 0
        self.paths: set[str] = set()
        """Of the calls in flight."""

    def start(self, path: str, now: float) -> None:
        """Start a call, unless it has started already."""
        if path not in self.paths:
            self.paths.add(path)
            self.flying.change(1, now)
            self.peak = max(self.peak, self.flying.value)

    def end(self, paths: Iterable[str], now: float) -> None:
        """End those of these calls that are in flight."""
        ended = self.paths.intersection(paths)
        self.paths -= ended
        if ended:
            self.flying.change(-len(ended), now)


class LimitChart:
    """The limits of one run so far, computed from events of the `KINDS`.

    Its time is that of `abreast.views.lane_fold.LaneFold`.
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
        self.window = TimeWindow(window, _GRAINS, whole=whole)
        self.now = 0.0
        self.time = DrivenTime()
        self.state, self.reason = RUNNING, ""
        self.flows: dict[str, CallFlow] = {}

    def cut(self) -> None:
        """End all calls in flight: the driver is gone."""
        self.state = CRASHED
        for flow in self.flows.values():
            flow.end(flow.paths, self.now)

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind not in self.KINDS:
            return
        self.now = self.time.take(event)
        self.window.grow(self.now)
        if event.kind in (events.RUN_STARTED, events.RUN_RESUMED):
            self.cut()
            self.state = RUNNING
        elif event.kind == events.RUN_ENDED:
            self.state = str(event.data.get("state"))
        elif event.lane is not None:
            if event.lane not in self.flows:
                self.flows[event.lane] = CallFlow(event.lane, self.window)
            self._add_to(self.flows[event.lane], event)

    def _add_to(self, flow: CallFlow, event: Event) -> None:
        if event.kind == events.CALL_STARTED:
            flow.start(event.path, self.now)
        elif event.kind == events.CALL_SETTLED:
            flow.calls += 1
            flow.end([event.path], self.now)
        elif flow.add(self.now, event.data).cause == "429":
            # A rejected call is no longer in flight; it starts again.
            beneath = f"{event.path}/"
            flow.end([path for path in flow.paths if path.startswith(beneath)], self.now)


def _shown(number: float | None) -> str:
    return "?" if number is None else f"{number:,.0f}" if number >= 10 else f"{number:.3g}"  # noqa: PLR2004 - small

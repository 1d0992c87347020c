"""A workflow's progress as lines of a log, for where no live line can be drawn."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, MAP_ENDED, Event
from abreast.views.job_view import failure_in, many, mapping, short, value_in, whole

_FAN_OUT_STARTED: Final = "fan-out-started"
_GATE_ASKED: Final = "gate-asked"
_REASON_LENGTH: Final = 200  # characters


class StepLog:
    """Says when each step ends, and how a fan-out goes.

    With `verbose`, it also says when steps start, and what becomes of each item of a fan-out and of
    each draw of a sample.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        """Nothing has started."""
        self._verbose = verbose
        self._started: dict[str, float] = {}  # by path, of what is under way
        self._fan_outs: dict[str, Counter[str]] = {}  # by path, the states of their items

    def lines(self, event: Event) -> Iterator[str]:
        """The lines that an event adds, without the name of the run."""
        name, said = event.path.partition("/")[2], ""
        shown = self._verbose or not self._is_within(event.path)
        if event.kind == _FAN_OUT_STARTED:
            said = self._begin_fan_out(event)
        elif event.kind == ITEM_STARTED:
            self._started[event.path] = event.mono
            said = "started" if self._verbose else ""
        elif event.kind == ITEM_SETTLED:
            said = self._settle(event)
        elif event.kind == MAP_ENDED and event.path in self._fan_outs:
            said = self._end_fan_out(event)
        elif event.kind == _GATE_ASKED:
            said = "waits for a decision"
        if said and shown:
            yield f"{name}: {said}"

    def _begin_fan_out(self, event: Event) -> str:
        self._started[event.path] = event.mono
        self._fan_outs[event.path] = Counter()
        count, width = (whole(event.data.get(word)) or 0 for word in ("items", "width"))
        return f"{many(count, 'item')}, {width} at once"

    def _settle(self, event: Event) -> str:
        state, why = _ending(event)
        if (states := self._fan_outs.get(event.path.rpartition("/")[0])) is not None:
            states[state] += 1
        return f"{state}{self._took(event)}" + (f": {why}" if why else "")

    def _end_fan_out(self, event: Event) -> str:
        states = self._fan_outs.pop(event.path)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"{counts or 'no item'}{self._took(event)}"

    def _is_within(self, path: str) -> bool:
        """Whether an item or a fan-out that is under way holds it."""
        above = path.rpartition("/")[0]
        while "/" in above:
            if above in self._started:
                return True
            above = above.rpartition("/")[0]
        return False

    def _took(self, event: Event) -> str:
        started = self._started.pop(event.path, None)
        return "" if started is None else f" in {event.mono - started:.1f} s"


def _ending(event: Event) -> tuple[str, str]:
    """The state that an item has ended in, and why if it isn't done."""
    state = str(event.data.get("state"))
    if state == "failed":
        return state, short(failure_in(event), _REASON_LENGTH)
    if state == "cancelled":
        return state, short(event.data.get("reason"), _REASON_LENGTH)
    value = mapping(value_in(event))
    if value.get("status") == "failed":  # a rejected gate: it is done, but it ends the run
        return "failed", short(value.get("error"), _REASON_LENGTH)
    return state, ""

"""Sums of what the model calls of a run used, read from its journal.

Calls that ended and calls that were cut off are counted apart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from abreast.core.events import CALL_SETTLED, CALL_STARTED, RUN_RESUMED, Event
from abreast.core.outcome import NO_USAGE, Usage
from abreast.run.outcome_record import usage_of

# The events that `call_totals` reads.
CALL_KINDS: Final = frozenset({CALL_STARTED, CALL_SETTLED, RUN_RESUMED})


@dataclass(slots=True)
class CallTotals:
    """Usage of finished calls by model, and the reservations of calls that were cut off."""

    # Usage of calls that ended by themselves; a kill and a resume don't change it.
    by_model: dict[str, Usage] = field(default_factory=dict)
    # Reservations of calls that were cancelled or in flight when the driver died. An upper bound:
    # how much of it was used is not known.
    cut_off: dict[str, float] = field(
        default_factory=lambda: {"requests": 0.0, "tokens": 0.0, "usd": 0.0}
    )

    @property
    def paid(self) -> dict[str, float]:
        """Both together: requests, tokens and money."""
        used = sum(self.by_model.values(), NO_USAGE)
        ended = (
            used.requests,
            used.input_tokens + used.output_tokens,
            sum(one.usd or 0.0 for one in self.by_model.values()),
        )
        return {
            name: amount + more
            for (name, amount), more in zip(self.cut_off.items(), ended, strict=True)
        }

    def add(self, data: Mapping[str, Any]) -> None:
        """Count a call that settled."""
        used = usage_of(data)
        if data.get("state") == "cancelled":
            self.lose(
                {"tokens": used.input_tokens + used.output_tokens, "usd": used.usd}, used.requests
            )
        else:
            model = str(data.get("model", ""))
            self.by_model[model] = self.by_model.get(model, NO_USAGE) + used

    def lose(self, reserved: Mapping[str, Any], requests: int = 1) -> None:
        """Count a call that was cut off."""
        for name, amount in (
            ("requests", requests),
            ("tokens", reserved.get("tokens")),
            ("usd", reserved.get("usd")),
        ):
            self.cut_off[name] += amount or 0


def call_totals(events: Iterable[Event], *, driven: bool = False) -> CallTotals:
    """Sum up the calls of a run from its events, in order.

    If the run is `driven`, calls still open at the end may finish: they are not counted.
    """
    totals = CallTotals()
    open_: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event.kind == CALL_STARTED:
            open_[event.path] = event.data
        elif event.kind == CALL_SETTLED:
            open_.pop(event.path, None)
            totals.add(event.data)
        elif event.kind == RUN_RESUMED:
            _lose_all(totals, open_)
    if not driven:
        _lose_all(totals, open_)
    return totals


def _lose_all(totals: CallTotals, open_: dict[str, Mapping[str, Any]]) -> None:
    for reserved in open_.values():
        totals.lose(reserved)
    open_.clear()


def describe_cut_off(totals: CallTotals) -> str | None:
    """The usage of calls that were cut off, in words; None if there were none."""
    lost = totals.cut_off
    if not lost["requests"]:
        return None
    cost = f", {lost['usd']:.4g} usd" if lost["usd"] else ""
    requests = f"{lost['requests']:,.0f} requests by a stop or a kill"
    return f"{requests}, at most {lost['tokens']:,.0f} tokens{cost}"

"""What a run of a study has cost so far by its journal: cells that were superseded since are in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abreast.core.events import CALL_SETTLED, CALL_STARTED, RUN_RESUMED
from abreast.run.record import usage_of
from abreast.store.port import RunRow, Store, each_event


def spent_of(store: Store, run: RunRow) -> dict[str, float]:
    """Requests, tokens and money of all calls; one that was cut off by a kill counts as what was reserved for it."""
    found = {"requests": 0.0, "tokens": 0.0, "usd": 0.0}
    open_: dict[str, Mapping[str, Any]] = {}

    def add(requests: float, tokens: float, usd: float | None) -> None:
        for name, amount in zip(found, (requests, tokens, usd or 0.0), strict=True):
            found[name] += amount

    def lose() -> None:
        for reserved in open_.values():
            add(1, float(reserved.get("tokens", 0)), reserved.get("usd"))
        open_.clear()

    for event in each_event(store, run.id, {CALL_STARTED, CALL_SETTLED, RUN_RESUMED}):
        if event.kind == RUN_RESUMED:
            lose()
        elif event.kind == CALL_STARTED:
            open_[event.path] = event.data
        else:
            open_.pop(event.path, None)
            used = usage_of(event.data)
            add(used.requests, used.input_tokens + used.output_tokens, used.usd)
    lose()
    return found

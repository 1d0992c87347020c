"""What can be done from the page: each is left in the requests table, for the record, and done by a driver.

A run that is driven is asked by that table. One that is not needs a new driver: what starts it is
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.run_end import is_over
from abreast.store.port import RunRow, Store
from abreast.views.run_reader import RunReader
from abreast.web.job_views import waiting_gates

Launch: TypeAlias = Callable[[Sequence[str]], str | None]
"""Starts `abreast` with these words, beside us.

A sentence if it ended at once because it could not.
"""


class ActionRefused(Exception):
    """What was asked for can't be done, in one sentence."""


def act(
    store: Store, launch: Launch | None, run_id: str, action: str, fields: Mapping[str, object]
) -> str:
    """Do it; what was done, in a sentence. `ActionRefused` says why not."""
    row = store.get(run_id)
    state = RunReader(store, run_id).state(row)
    if action == "cancel":
        return _cancel(
            store, launch, row, state, _word(fields, "reason") or "cancelled in the page"
        )
    if action == "resume":
        more = ["--retry-failed"] if fields.get("retry_failed") is True else []
        return _go_on(
            store,
            launch,
            row,
            state,
            words=["resume", *more, "--", row.id],
            asked={"action": "resume"},
        )
    if action == "approve":
        gate, option = _word(fields, "gate"), _word(fields, "option")
        if not gate or not option or "=" in gate:
            raise ActionRefused("a decision needs the name of its gate and one of its options")
        if option not in waiting_gates(RunReader(store, run_id), row.kind).get(gate, ()):
            raise ActionRefused(
                f"no gate {gate} of {row.id} waits for {option!r}"
            )  # nor is an input changed by that way
        words = ["resume", "--input", f"{gate}={option}", "--", row.id]
        asked = {"action": "approve", "gate": gate, "option": option}
        return _go_on(store, launch, row, state, words=words, asked=asked)
    raise ActionRefused(f"there is no action {action!r}")


def _cancel(store: Store, launch: Launch | None, row: RunRow, state: str, reason: str) -> str:
    if state == "running":
        store.ask(row.id, "cancel", {"reason": reason}, SYSTEM_CLOCK.wall())
        return f"{row.id} was asked to stop"
    if state in ("done", "cancelled"):
        raise ActionRefused(f"{row.id} is over already ({state})")
    _start(launch, ["cancel", "--reason", reason, "--", row.id])
    return f"{row.id} is cancelled"


def _go_on(
    store: Store,
    launch: Launch | None,
    row: RunRow,
    state: str,
    *,
    words: Sequence[str],
    asked: dict[str, str],
) -> str:
    if state == "running":
        raise ActionRefused(f"{row.id} is running already")
    if is_over(row.state, row.reason) and "--retry-failed" not in words:
        raise ActionRefused(f"{row.id} is {state}")
    if launch is None:
        raise ActionRefused("this page can't start anything")
    store.ask(row.id, asked["action"], {**asked}, SYSTEM_CLOCK.wall())
    _start(launch, words)
    return f"{row.id} goes on"


def _start(launch: Launch | None, words: Sequence[str]) -> None:
    if launch is None:
        raise ActionRefused("this page can't start anything")
    why_not = launch(words)
    if why_not:
        raise ActionRefused(why_not)


def _word(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""

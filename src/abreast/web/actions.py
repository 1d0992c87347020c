"""Actions of the page: cancel, resume and approve a run; apply, undo or reject a merge.

A run with a driver gets its request through the requests table of the store. A run without one
needs a new driver, which the `launch` callable starts; the request is recorded all the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.run_end import is_over
from abreast.jobs.plan.review.tree_manifest import merge_folder
from abreast.store.port import RunRow, Store
from abreast.views.run_reader import shown_state
from abreast.web.store_reader import waiting_gates

Launch: TypeAlias = Callable[[Sequence[str]], str | None]
"""Starts `abreast` with these arguments as a separate process.

Returns a sentence if the process ended with an error, else None. It waits for the end of commands
of a plan; of others, which drive a run, only as long as they take to start.
"""


_MERGES: Final = {"apply": "applied", "undo": "taken back", "reject": "rejected"}


class ActionRefused(Exception):
    """The action can't be done; the message says why in one sentence."""


def act(
    store: Store, launch: Launch | None, run_id: str, action: str, fields: Mapping[str, object]
) -> str:
    """Do an action and return a sentence that says what was done.

    Raises `ActionRefused` if the action is unknown or does not fit the run's state.
    """
    row = store.get(run_id)
    state = shown_state(store, row)
    if action == "cancel":
        return _cancel(
            store, launch, row, state, _text_field(fields, "reason") or "cancelled in the page"
        )
    if action == "resume":
        more = ["--retry-failed"] if fields.get("retry_failed") is True else []
        return _resume(
            store,
            launch,
            row,
            state,
            arguments=["resume", *more, "--", row.id],
            request={"action": "resume"},
        )
    if action == "approve":
        gate, option = _text_field(fields, "gate"), _text_field(fields, "option")
        if not gate or not option or "=" in gate:
            raise ActionRefused("a decision needs the name of its gate and one of its options")
        if option not in waiting_gates(store, row).get(gate, ()):
            # Without this check, `--input` could also change an input of the run.
            raise ActionRefused(f"no gate {gate} of {row.id} waits for {option!r}")
        arguments = ["resume", "--input", f"{gate}={option}", "--", row.id]
        request = {"action": "approve", "gate": gate, "option": option}
        return _resume(store, launch, row, state, arguments=arguments, request=request)
    if action in _MERGES:
        more = ["--anyway"] if action == "apply" and fields.get("anyway") is True else []
        if action == "reject":
            more = ["--reason", _text_field(fields, "reason") or "rejected in the page"]
        return _merge(launch, row, state, action, more)
    raise ActionRefused(f"there is no action {action!r}")


def _merge(launch: Launch | None, row: RunRow, state: str, action: str, more: Sequence[str]) -> str:
    """Write what a run did in trees into its directory, take that back or reject it.

    The command of that name does it.
    """
    if row.kind != "plan" and merge_folder(row) is None:
        raise ActionRefused(f"{row.id} is no plan, and had no worktrees")
    if state == "running":
        raise ActionRefused(f"{row.id} is running")
    _start(launch, ["plan", action, *more, "--", row.id])
    return f"{row.id} is {_MERGES[action]}"


def _cancel(store: Store, launch: Launch | None, row: RunRow, state: str, reason: str) -> str:
    if state == "running":
        store.ask(row.id, "cancel", {"reason": reason}, SYSTEM_CLOCK.wall())
        return f"{row.id} was asked to stop"
    if state in ("done", "cancelled"):
        raise ActionRefused(f"{row.id} is over already ({state})")
    _start(launch, ["cancel", "--reason", reason, "--", row.id])
    return f"{row.id} is cancelled"


def _resume(
    store: Store,
    launch: Launch | None,
    row: RunRow,
    state: str,
    *,
    arguments: Sequence[str],
    request: dict[str, str],
) -> str:
    if state == "running":
        raise ActionRefused(f"{row.id} is running already")
    if is_over(row.state, row.reason) and "--retry-failed" not in arguments:
        raise ActionRefused(f"{row.id} is {state}")
    if launch is None:
        raise ActionRefused("this page can't start anything")
    store.ask(row.id, request["action"], {**request}, SYSTEM_CLOCK.wall())
    _start(launch, arguments)
    return f"{row.id} goes on"


def _start(launch: Launch | None, arguments: Sequence[str]) -> None:
    if launch is None:
        raise ActionRefused("this page can't start anything")
    error = launch(arguments)
    if error:
        raise ActionRefused(error)


def _text_field(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""

"""What earlier drivers recorded of cells: the seconds of their calls, and how many are done."""

from collections.abc import Mapping
from typing import Any

from abreast.core.events import CALL_SETTLED
from abreast.core.item import escape
from abreast.run.current import CurrentItem
from abreast.run.run import Run
from abreast.store.port import each_outcome

_MAX_CALLS = 1_000_000  # of one cell that are read
_FINAL_STATES = ("done", "failed")


async def earlier_seconds(work: CurrentItem) -> dict[str, float]:
    """Seconds of the recorded calls beneath an item, by column of its row; empty without any.

    Calls before a final outcome of the item belong to that outcome and are not counted: the item
    runs again because it changed, or failed.
    """
    context = work.run.context
    writer, store, row = context.writer, context.store, context.row
    if not context.resumed or writer is None or store is None or row is None:
        return {}
    found, recorded = await writer.read(
        lambda: (
            store.events(row.id, kinds={CALL_SETTLED}, prefix=work.path, limit=_MAX_CALLS),
            store.recorded(row.id, [work.path]).get(work.path),
        )
    )
    final = recorded is not None and recorded.data.get("state") in _FINAL_STATES
    since = recorded.seq if recorded is not None and final else 0
    calls = {
        event.path: event.data
        for event in found
        if event.seq > since and event.data.get("state") in _FINAL_STATES
    }
    return _seconds(calls) if calls else {}


async def recorded_done(run: Run, *, except_lane: str) -> int:
    """How many cells of a run are recorded as done, on all lanes but one."""
    writer, store, row = run.context.writer, run.context.store, run.context.row
    if writer is None or store is None or row is None:
        return 0
    depth = run.path.count("/") + 2  # the run, the lane, the cell
    excluded = f"{run.path}/{escape(except_lane)}/"

    return await writer.read(
        lambda: sum(
            one.data.get("state") == "done"
            and one.path.count("/") == depth
            and not one.path.startswith(excluded)
            for one in each_outcome(store, row.id, prefix=run.path)
        )
    )


def _seconds(calls: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Sum up the seconds of calls.

    The last attempt of a call counts as service; the attempts before it count as backoff.
    """
    found = {"queue_s": 0.0, "backoff_s": 0.0, "service_s": 0.0}
    for facts in calls.values():
        *failed, last = facts.get("service") or [0.0]
        found["queue_s"] += facts.get("waited", 0.0)
        found["backoff_s"] += facts.get("backoff", 0.0) + sum(failed)
        found["service_s"] += last
    return found

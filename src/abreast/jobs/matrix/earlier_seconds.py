"""What earlier drivers recorded of cells: the seconds of their calls, which a resumed cell counts, and what is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abreast.core.events import CALL_SETTLED
from abreast.core.item import escape
from abreast.run.current import CurrentItem
from abreast.run.run import Run
from abreast.store.port import each_outcome

_MOST = 1_000_000  # calls of one cell
_FINAL = ("done", "failed")


async def earlier_seconds(work: CurrentItem) -> dict[str, float]:
    """Seconds of the recorded calls beneath an item, by column of its row.

    Empty where there are none.

    Calls before a final outcome of the item belong to that outcome: the item runs again because it
    changed, or failed.
    """
    setting = work.drive.setting
    scribe, store, row = setting.scribe, setting.store, setting.row
    if not setting.resumed or scribe is None or store is None or row is None:
        return {}
    found, recorded = await scribe.read(
        lambda: (
            store.events(row.id, kinds={CALL_SETTLED}, prefix=work.path, limit=_MOST),
            store.recorded(row.id, [work.path]).get(work.path),
        )
    )
    final = recorded is not None and recorded.data.get("state") in _FINAL
    since = recorded.seq if recorded is not None and final else 0
    calls = {
        event.path: event.data
        for event in found
        if event.seq > since and event.data.get("state") in _FINAL
    }
    return _seconds(calls) if calls else {}


async def recorded_done(run: Run, *, except_lane: str) -> int:
    """How many cells of a run are recorded as done, on all lanes but one."""
    scribe, store, row = run.setting.scribe, run.setting.store, run.setting.row
    if scribe is None or store is None or row is None:
        return 0
    depth = run.path.count("/") + 2  # the run, the lane, the cell
    left_out = f"{run.path}/{escape(except_lane)}/"

    def look() -> int:
        found = (
            one
            for one in each_outcome(store, row.id, prefix=run.path)
            if one.data.get("state") == "done"
        )
        return sum(
            one.path.count("/") == depth and not one.path.startswith(left_out) for one in found
        )

    return await scribe.read(look)


def _seconds(calls: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The last attempt of a call was answered.

    The time of those before it went into trying again.
    """
    found = {"queue_s": 0.0, "backoff_s": 0.0, "service_s": 0.0}
    for facts in calls.values():
        *failed, last = facts.get("service") or [0.0]
        found["queue_s"] += facts.get("waited", 0.0)
        found["backoff_s"] += facts.get("backoff", 0.0) + sum(failed)
        found["service_s"] += last
    return found

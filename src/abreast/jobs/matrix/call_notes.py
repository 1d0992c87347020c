"""The requests that were sent for one cell, now or by an earlier driver, and those in flight."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from abreast.core.events import CALL_SETTLED
from abreast.core.item import escape
from abreast.jobs.matrix.rows import FINAL_STATES, SubResult
from abreast.run.current import CurrentItem
from abreast.run.run import Run
from abreast.store.port import each_outcome

_MAX_CALLS = 1_000_000  # of one cell that are read

End: TypeAlias = Literal["done", "throttled", "fault"]


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One request that was sent to the provider."""

    began: float
    ended: float
    end: End
    in_flight: int
    seconds: float


@dataclass(slots=True)
class CellNotes:
    """The requests of one cell, and its sub-results."""

    began: float
    attempts: list[CallAttempt] = field(default_factory=list)
    steps: list[SubResult] = field(default_factory=list)
    earlier: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the calls that an earlier driver recorded; these are not made again."""

    def times(self) -> dict[str, float]:
        """The seconds of the cell, by cause.

        They add up to `wall_s` if its calls were made one after the other.
        """
        found = {"queue_s": 0.0, "hold_s": 0.0, "backoff_s": 0.0, "service_s": 0.0, **self.earlier}
        before, cause = self.began, "queue_s"
        for one in sorted(self.attempts, key=lambda attempt: attempt.began):
            found[cause] += max(0.0, one.began - before)
            spent = max(0.0, one.ended - one.began)
            own = min(one.seconds, spent) if one.end == "done" else spent
            found[_CAUSE_DURING[one.end]] += own
            found["queue_s"] += spent - own
            before, cause = max(before, one.ended), _CAUSE_AFTER[one.end]
        return {**found, "wall_s": before - self.began + sum(self.earlier.values())}


_CAUSE_DURING: dict[End, str] = {"done": "service_s", "throttled": "hold_s", "fault": "backoff_s"}
_CAUSE_AFTER: dict[End, str] = {"done": "queue_s", "throttled": "hold_s", "fault": "backoff_s"}

NOTES: ContextVar[CellNotes | None] = ContextVar("abreast_matrix_notes", default=None)


@dataclass(slots=True)
class LaneCount:
    """How many requests of a lane are in flight, and were at most."""

    now: int = 0
    peak: int = 0
    throttled: int = 0

    def enter(self) -> int:
        """Count one more request in flight; return how many there are now."""
        self.now += 1
        self.peak = max(self.peak, self.now)
        return self.now

    def leave(self) -> None:
        """Count one request less in flight."""
        self.now -= 1


@runtime_checkable
class CountedModel(Protocol):
    """A model whose requests are counted on a lane."""

    lane: LaneCount


# --- what earlier drivers recorded of cells -------------------------------------------------------


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
    final = recorded is not None and recorded.data.get("state") in FINAL_STATES
    since = recorded.seq if recorded is not None and final else 0
    calls = {
        event.path: event.data
        for event in found
        if event.seq > since and event.data.get("state") in FINAL_STATES
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

"""A rejection: the recorded decision not to merge what a run did in worktrees.

It is a request to the run, as a cancellation is. It counts until the run goes on, which makes other
results, or until the run is applied all the same.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.store.port import RunRow, Store

REJECT: Final = "reject"
"""The kind of the request."""
_EPOCH: Final = "epoch"  # of the driver whose results were rejected; one that goes on has a later


@dataclass(frozen=True, slots=True)
class RejectedMerge:
    """When the results of a run were rejected, and why."""

    at: float
    reason: str

    def __str__(self) -> str:
        """Return `rejected at 2026-11-17 21:50 UTC: the reason`."""
        at = datetime.fromtimestamp(self.at, UTC)
        return f"rejected at {at:%Y-%m-%d %H:%M} UTC" + (f": {self.reason}" if self.reason else "")

    def plain(self) -> dict[str, float | str]:
        """The rejection as JSON values."""
        return {"at": self.at, "reason": self.reason}


def reject(store: Store, row: RunRow, reason: str) -> None:
    """Record that the results of a run are rejected."""
    store.ask(row.id, REJECT, {"reason": reason, _EPOCH: row.epoch}, SYSTEM_CLOCK.wall())


def rejection_of(store: Store, row: RunRow) -> RejectedMerge | None:
    """The newest rejection of a run that counts; None if there is none."""
    found = [
        each
        for each in store.asked(row.id)
        if each.kind == REJECT and each.data.get(_EPOCH) == row.epoch
    ]
    return (
        RejectedMerge(found[-1].created, str(found[-1].data.get("reason") or "")) if found else None
    )


def overrule(store: Store, run: str) -> None:
    """Let the rejections of a run count no longer; they stay in the store."""
    for each in store.asked(run):
        if each.kind == REJECT:
            store.answer(each.id, SYSTEM_CLOCK.wall())

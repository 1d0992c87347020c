"""The rows of runs and ledgers with their checksums, the same for every store that keeps rows."""

from collections.abc import Iterable, Sequence

from abreast.core.errors import StoreDamaged
from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.checksums import (
    DRIVEN_COUNT,
    Fault,
    StoredRun,
    driven_sum,
    named,
    progress_sum,
    row_sum,
    run_fault,
)
from abreast.store.port import OnDamage, RunRow
from abreast.store.rows import Row, run_row


def damaged(path: str, run_id: str, faults: Sequence[Fault]) -> StoreDamaged:
    """The error for a run whose rows are not as they were written."""
    error = StoreDamaged(f"run {run_id} in {path} is damaged: {named(faults)}")
    error.run_id = run_id
    return error


def whole_ledgers(rows: Iterable[Row]) -> dict[str, str]:
    """The ledgers of shared lanes that are as they were written: name, checksum, name, text."""
    return {name: text for name, total, *_, text in rows if total == row_sum((name, text))}


def run_of(path: str, row: Row) -> RunRow:
    """A run from its columns; `StoreDamaged` if they are not as they were written."""
    run = StoredRun(*row)
    if (fault := run_fault(run)) is not None:
        raise damaged(path, str(run.id), [fault])
    return run_row(
        (
            run.id,
            run.name,
            run.kind,
            run.state,
            run.seed,
            run.epoch,
            run.created,
            run.ended,
            run.last_seq,
            run.driver,
            run.reason,
            run.tags,
            run.spent,
            run.manifest,
        )
    )


def runs_of(path: str, rows: Iterable[Row], on_damage: OnDamage | None) -> list[RunRow]:
    """Runs from their columns; `on_damage` is called for each that is damaged, or it is raised."""
    found = []
    for row in rows:
        try:
            found.append(run_of(path, row))
        except StoreDamaged as error:
            if on_damage is None:
                raise
            on_damage(error)
    return found


class DrivenRun:
    """The row of a run as its driver last wrote it, so that it need not be read for each commit."""

    __slots__ = ("_driven", "_prefix", "number", "run")

    def __init__(self, number: int, run: StoredRun) -> None:
        self.number = number
        self.run = run
        self._driven = run[:DRIVEN_COUNT]
        self._prefix = driven_sum(run)

    def after(self, events: Sequence[Event], spent: str, tail: int | None) -> StoredRun:
        """The row after a commit of these events."""
        run = self.run
        beat, last_seq, settled = run.beat, run.last_seq, run.settled
        if events:
            beat, last_seq = max(beat, float(events[-1].wall)), max(last_seq, events[-1].seq)
            if settled is not None:
                settled += [event[1] for event in events].count(ITEM_SETTLED)
        progress = (beat, last_seq, spent, tail, settled)
        return StoredRun(*self._driven, *progress, progress_sum(self._prefix, progress))

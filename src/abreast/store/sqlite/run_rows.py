"""Reads and writes the rows of runs with their checksums, inside an open transaction."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.checksums import (
    FIXED_COLUMNS,
    StoredRun,
    event_sum,
    fixed_sum,
    run_fault,
    run_key,
    run_sum,
    state_fault,
)
from abreast.store.port import RunRow
from abreast.store.rows import Row, event_columns, facts_text, run_row
from abreast.store.sqlite.sql import sql
from abreast.store.sqlite.verify import damaged

_CHANGING_AT: Final = len(FIXED_COLUMNS)


class RunEnd(NamedTuple):
    """How a run ended, and when."""

    state: str
    reason: str
    at: float


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


def stored_run(db: sqlite3.Connection, number: int) -> StoredRun | None:
    """All columns of a run as they are stored; None if there is no such run."""
    fixed = db.execute(sql("find_fixed"), (number,)).fetchone()
    if fixed is None:
        return None
    return StoredRun(*fixed, *db.execute(sql("find_run_state"), (number,)).fetchone())


def write_run(db: sqlite3.Connection, number: int, run: StoredRun) -> None:
    """Write the changing columns of a run, and its checksum."""
    row = run._replace(sum=run_sum(run))
    db.execute(sql("set_run_state"), (*row[_CHANGING_AT:], number))


def seal_run(db: sqlite3.Connection, number: int) -> StoredRun:
    """Write the checksums of a run that has none yet: a new run, or one of before."""
    run = stored_run(db, number)
    if run is None:
        raise LookupError(number)
    starts = run.last_seq + 1 if run.checked_from is None else run.checked_from
    run = run._replace(fixed=fixed_sum(run), checked_from=starts)
    write_run(db, number, run)
    return run


def take_run(db: sqlite3.Connection, number: int, path: str, driver: str) -> None:
    """Make a driver the run's newest; a run of before gets checksums from here on."""
    run = stored_run(db, number)
    if run is None:
        return
    if (fault := run_fault(run)) is not None:
        raise damaged(path, run.id, [fault])
    if run.fixed is None:
        run = seal_run(db, number)
    run = run._replace(epoch=run.epoch + 1, driver=driver, state="running", reason="", ended=None)
    write_run(db, number, run)


def end_run(db: sqlite3.Connection, number: int, epoch: int, end: RunEnd) -> bool:
    """Record how a run ended; False if the run has a newer driver."""
    run = stored_run(db, number)
    if run is None or run.epoch != epoch:
        return False
    run = run._replace(driver=None, state=end.state, reason=end.reason, ended=end.at)
    write_run(db, number, run)
    return True


class Commit:
    """One commit of events to a run, encoded before the write lock is taken."""

    def __init__(
        self,
        run_id: str,
        number: int,
        epoch: int,
        events: Sequence[Event],
        spent: Mapping[str, float],
    ) -> None:
        self._run_id = run_id
        self._number = number
        self._epoch = epoch
        self._events = events
        self._spent = facts_text(spent)
        self._rows, self._blobs = event_columns(number, events)

    def write(self, db: sqlite3.Connection, path: str) -> bool:
        """Write the events and the run's row; False if the run has a newer driver."""
        found = db.execute(sql("find_run_state"), (self._number,)).fetchone()
        if found is None:
            return False
        run = StoredRun(self._run_id, "", "", "", 0.0, "", "", *found)
        if run.epoch != self._epoch:
            return False
        if (fault := state_fault(run)) is not None:
            raise damaged(path, self._run_id, [fault])
        if run.fixed is None:  # the events are notes of a driver of an earlier version
            run = seal_run(db, self._number)
        tail, events = run.tail, self._events
        if events:
            tail = self._insert_events(db, run)
        write_run(
            db,
            self._number,
            run._replace(
                last_seq=max(run.last_seq, events[-1].seq) if events else run.last_seq,
                spent=self._spent,
                beat=max(run.beat, float(events[-1].wall)) if events else run.beat,
                tail=tail,
                settled=run.settled if run.settled is None else run.settled + self._settled(),
            ),
        )
        return True

    def _insert_events(self, db: sqlite3.Connection, run: StoredRun) -> int | None:
        key, epoch, tail = run_key(self._run_id), self._epoch, run.tail
        rows = []
        for (seq, kind, route, mono, wall, lane, _, body), row in zip(
            self._events, self._rows, strict=True
        ):
            tail = event_sum(key, tail, (seq, kind, route, lane, mono, wall, row[7], body, epoch))
            rows.append((*row, epoch, tail))
        db.executemany(sql("insert_event"), rows)
        if self._blobs:
            db.executemany(sql("insert_blob"), self._blobs)
        return tail

    def _settled(self) -> int:
        return sum(event.kind == ITEM_SETTLED for event in self._events)

"""Reads and writes the rows of runs with their checksums, inside an open transaction."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from abreast.core.events import Event
from abreast.store.checked_runs import DrivenRun, damaged
from abreast.store.checksums import (
    DRIVEN_COUNT,
    FIXED_COUNT,
    StoredRun,
    fixed_sum,
    run_fault,
    run_key,
    run_sum,
    state_fault,
    with_sums,
)
from abreast.store.rows import event_columns, facts_text
from abreast.store.sqlite.sql import sql


class RunEnd(NamedTuple):
    """How a run ended, and when."""

    state: str
    reason: str
    at: float


def stored_run(db: sqlite3.Connection, number: int) -> StoredRun | None:
    """All columns of a run as they are stored; None if there is no such run."""
    fixed = db.execute(sql("find_fixed"), (number,)).fetchone()
    if fixed is None:
        return None
    return StoredRun(*fixed, *db.execute(sql("find_run_state"), (number,)).fetchone())


def write_run(db: sqlite3.Connection, number: int, run: StoredRun) -> StoredRun:
    """Write the changing columns of a run and its checksum; returns the run with that."""
    run = run._replace(sum=run_sum(run))
    db.execute(sql("set_run_state"), (*run[FIXED_COUNT:], number))
    return run


def seal_run(db: sqlite3.Connection, number: int) -> StoredRun:
    """Write the checksums of a run that has none yet: a new run, or one of before."""
    run = stored_run(db, number)
    if run is None:
        raise LookupError(number)
    starts = run.last_seq + 1 if run.checked_from is None else run.checked_from
    return write_run(db, number, run._replace(fixed=fixed_sum(run), checked_from=starts))


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


def read_driven(db: sqlite3.Connection, path: str, run_id: str, number: int) -> DrivenRun:
    """Read the row of a run that events are written to; `LookupError` if it was removed.

    A run of before gets checksums: the events are notes of a driver of an earlier version.
    """
    found = db.execute(sql("find_run_state"), (number,)).fetchone()
    if found is None:
        raise LookupError(run_id)
    run = StoredRun(run_id, "", "", "", 0.0, "", "", *found)
    if (fault := state_fault(run)) is not None:
        raise damaged(path, run_id, [fault])
    return DrivenRun(number, seal_run(db, number) if run.fixed is None else run)


class Commit:
    """One commit of events to a run, encoded before the write lock is taken."""

    def __init__(self, number: int, events: Sequence[Event], spent: Mapping[str, float]) -> None:
        self._events = events
        self._spent = facts_text(spent)
        self._rows, self._blobs = event_columns(number, events)

    def write(self, db: sqlite3.Connection, driven: DrivenRun) -> StoredRun | None:
        """Write the events and the run's row, which is returned.

        None, and nothing is written, if the row is not as `driven` has it.
        """
        run, tail = driven.run, driven.run.tail
        rows = with_sums(run_key(run.id), tail, run.epoch, self._events, self._rows)
        after = driven.after(self._events, self._spent, int(rows[-1][-1] or 0) if rows else tail)
        place = (driven.number, run.epoch, run.sum)
        if not db.execute(sql("advance_run"), (*after[DRIVEN_COUNT:], *place)).rowcount:
            return None
        db.executemany(sql("insert_event"), rows)
        if self._blobs:
            db.executemany(sql("insert_blob"), self._blobs)
        return after

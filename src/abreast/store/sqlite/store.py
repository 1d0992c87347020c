"""The store in one SQLite file: a write-ahead log, flushed apart from the commits, and one driver per run."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from abreast.core.clock import pause
from abreast.core.errors import NoSuchRun, RunBusy, StoreError
from abreast.core.events import CALL_SETTLED, ITEM_READ, ITEMS_COMPLETE, MAP_STARTED, Event
from abreast.store.atomic_file import appearing
from abreast.store.driver_locks import DriverLocks
from abreast.store.notes import WriteAheadNotes, left_in
from abreast.store.os_errors import one_sentence
from abreast.store.port import (
    PRUNED,
    ControlRequest,
    Driver,
    JsonValue,
    Recorded,
    Replies,
    RunRow,
    RunState,
)
from abreast.store.rows import (
    SEQ_BITS,
    Row,
    already,
    beneath,
    busy,
    driver_text,
    event_columns,
    event_row,
    facts_of,
    facts_text,
    no_such_run,
    recorded_row,
    replaced,
    run_row,
)
from abreast.store.sqlite.database import Database
from abreast.store.sqlite.sql import sql

_FEW_PAGES: Final = (
    20  # outcomes beneath a prefix are looked up by index up to this many pages of them
)

_GLANCES: Final = (
    0.02,
    0.02,
    0.02,
    0.02,
    0.0,
)  # seconds until a lock is asked for again: another may only be looking

_LISTS: Final = {  # kinds that have an index of their own
    frozenset({ITEM_READ}): "list_inputs",
    frozenset({ITEM_READ, ITEMS_COMPLETE}): "list_inputs",
    frozenset({ITEMS_COMPLETE}): "list_inputs",
    frozenset({MAP_STARTED}): "list_maps",
    frozenset({CALL_SETTLED}): "list_calls",
}


class SqliteStore:
    """Runs in the SQLite file at `path`, which is made if need be (mode 0600).

    Any thread may use it.

    Other processes may have the same file open, each driving runs of its own; a writer that can't get its turn within
    `busy_timeout` seconds raises `StoreLocked`.

        with closing(SqliteStore("runs.db")) as store:
            print([row.id for row in store.runs()])
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 30.0) -> None:
        """Open it; a clear `StoreError` if it is newer, damaged, read-only or on a full disk."""
        where = os.path.realpath(
            path
        )  # one name for one file, or two drivers would each hold a lock of their own
        self.path = where
        self.url = f"sqlite:///{where}"
        self._db = Database(where, busy_timeout)
        self._locks = DriverLocks(f"{where}-locks")
        self._driving: dict[
            str, int
        ] = {}  # numbers of the runs this store holds; a number is never used again
        self._spools: dict[
            str, WriteAheadNotes
        ] = {}  # what is noted of them and may not be committed yet
        for number in self._locks.written_in():
            self._recover(number)

    def __repr__(self) -> str:
        """Where it is and what it drives."""
        return f"<SqliteStore {self.path} driving {len(self._driving)}>"

    def begin(
        self,
        name: str,
        *,
        kind: str,
        seed: int,
        manifest: Mapping[str, JsonValue],
        tags: Sequence[str],
        driver: Driver,
        run_id: str | None = None,
    ) -> RunRow:
        """Make a new run, driven by `driver`.

        Its id is `name-N`, or just the `run_id` that is given.
        """
        columns = {
            "name": name,
            "kind": kind,
            "seed": str(seed),
            "at": driver.since,
            "driver": driver_text(driver),
            "tags": facts_text(list(tags)),
            "manifest": facts_text(manifest),
        }
        number = 0
        try:
            with self._db.writing() as db:
                run_id = _new_id(db, name) if run_id is None else _free_id(db, run_id)
                [(number,)] = db.execute(sql("insert_run"), {**columns, "id": run_id}).fetchall()
                self._take(number, run_id)
            self._drive(run_id, number)
        except BaseException:
            self._locks.free(number)
            raise
        return self.get(run_id)

    def take_over(self, run_id: str, driver: Driver) -> RunRow:
        """Become the driver of an existing run: its epoch goes up by one.

        `RunBusy` if another is alive on it.
        """
        number = self._hold(run_id)
        try:
            with self._db.writing() as db:
                self._commit_left(db, number)
                db.execute(sql("take_run"), {"number": number, "driver": driver_text(driver)})
            row = self.get(run_id)  # unless it was removed just before our lock
            self._drive(run_id, number)
        except BaseException:
            self._locks.free(number)
            raise
        return row

    def driven(self, run_id: str) -> bool:
        """Whether somebody alive drives the run right now.

        A `running` run without a driver has crashed.
        """
        number = self._number(run_id)
        with one_sentence(self.path):
            taken = self._locks.is_taken(number)
        if not taken and self._locks.path(number).exists():  # an empty one is gone now
            self._recover(number)
        return taken

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Write events in one transaction.

        `sync` puts them on disk. `DriverReplaced` if the epoch is not the run's.
        """
        number = self._driving.get(run_id) or self._number(run_id)
        step = _step(number, epoch, events, spent)  # before anybody has to wait for us
        with self._db.writing(sync=False) as db:
            if not _take_step(db, *step):
                raise replaced(self.get(run_id), epoch)
        spool = self._spools.get(run_id)
        if spool is not None and events:
            spool.committed(events[-1].seq)

    def jot(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> bool:
        """Note events, quickly, so that they survive the end of this process.

        False, and nothing noted, if it can't.
        """
        spool = self._spools.get(run_id)
        return spool is not None and spool.add(epoch, events, spent)

    def sync(self) -> None:
        """See to it that everything committed so far is on disk."""
        self._db.sync()

    def end(self, run_id: str, epoch: int, state: RunState, reason: str, at: float) -> None:
        """Say how the driving ended, and let go of the run."""
        columns = {"id": run_id, "epoch": epoch, "state": state, "reason": reason, "at": at}
        with self._db.writing() as db:
            ended = db.execute(sql("end_run"), columns).rowcount
        if not ended:
            raise replaced(self.get(run_id), epoch)
        self._let_go(run_id, for_good=True)

    def let_go(self, run_id: str) -> None:
        """Drop this process's hold on the run without a word (as a crash would)."""
        self._let_go(run_id)

    def newest(self, name: str) -> RunRow | None:
        """The newest run of that name."""
        with self._db.reading() as db:
            row = db.execute(sql("newest_run"), (name,)).fetchone()
        return run_row(row) if row else None

    def get(self, run_id: str) -> RunRow:
        """The run of that id; `NoSuchRun` names some that exist."""
        with self._db.reading() as db:
            return run_row(_one(db, "find_run", run_id))

    def runs(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        tag: str | None = None,
        limit: int = 100,
    ) -> list[RunRow]:
        """Runs, newest first."""
        with self._db.reading() as db:
            rows = db.execute(
                sql("list_runs"), {"name": name, "state": state, "tag": tag, "limit": limit}
            ).fetchall()
        return [run_row(row) for row in rows]

    def recorded(self, run_id: str, paths: Collection[str]) -> dict[str, Recorded]:
        """What is recorded under just these paths."""
        look = sql("find_outcome")
        with self._db.reading() as db:
            (number,) = _one(db, "find_number", run_id)
            rows = [row for path in paths for row in db.execute(look, (number, path))]
        return {row[0]: recorded_row(row) for row in rows}

    def outcomes(
        self, run_id: str, *, prefix: str = "", after: int = 0, limit: int = 1000
    ) -> list[Recorded]:
        """The newest outcome of each path beneath `prefix`, in order of `seq`, from after that `seq`."""
        most = _FEW_PAGES * limit
        with self._db.reading() as db:
            bounds = {**_bounds(db, run_id, after), **beneath(prefix), "limit": limit, "most": most}
            few = prefix and db.execute(sql("count_settled"), bounds).fetchone()[0] < most
            rows = db.execute(
                sql("list_outcomes_beneath" if few else "list_outcomes"), bounds
            ).fetchall()
        return [recorded_row(row) for row in rows]

    def count_states(self, run_id: str, most: int) -> dict[str, int]:
        """How many items are in each state, by their newest outcomes, of which at most `most` are looked at."""
        with self._db.reading() as db:
            (number,) = _one(db, "find_number", run_id)
            return dict(db.execute(sql("count_states"), {"run": number, "most": most}).fetchall())

    def events(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: Collection[str] = (),
        prefix: str = "",
    ) -> list[Event]:
        """Events in order of `seq`, from after that one."""
        statement = sql(_LISTS.get(frozenset(kinds), "list_events"))
        wanted = {"kinds": facts_text(list(kinds)) if kinds else None, "limit": limit}
        with self._db.reading() as db:
            bounds = {**_bounds(db, run_id, after), **beneath(prefix), **wanted}
            rows = db.execute(statement, bounds).fetchall()
        return [event_row(row) for row in rows]

    def ask(self, run_id: str, kind: str, data: Mapping[str, JsonValue], at: float) -> int:
        """Leave a request for the run's driver; its id."""
        with self._db.writing() as db:
            (number,) = _one(db, "find_number", run_id)
            [(request,)] = db.execute(
                sql("insert_request"), (number, kind, facts_text(data), at)
            ).fetchall()
        return int(request)

    def asked(self, run_id: str) -> list[ControlRequest]:
        """Requests not yet carried out, oldest first."""
        with self._db.reading() as db:
            rows = db.execute(sql("list_requests"), _one(db, "find_number", run_id)).fetchall()
        return [
            ControlRequest(number, run_id, kind, facts_of(data), at)
            for number, kind, data, at in rows
        ]

    def answer(self, request_id: int, at: float) -> None:
        """Mark a request as carried out."""
        with self._db.writing() as db:
            db.execute(sql("answer_request"), (at, request_id))

    def find_reply(self, key: str) -> str | None:
        """The reply kept under a key, if there is one."""
        with self._db.reading() as db:
            row = db.execute(sql("find_reply"), (key,)).fetchone()
        return row[0] if row else None

    def keep_reply(self, key: str, model: str, body: str, at: float) -> None:
        """Keep a model's reply under a key; it is on disk when this returns."""
        with self._db.writing() as db:
            db.execute(sql("keep_reply"), (key, model, body, at))

    def replies(self) -> list[Replies]:
        """What is kept, by model."""
        with self._db.reading() as db:
            return [Replies(*row) for row in db.execute(sql("count_replies"))]

    def forget_replies(self, before: float, model: str | None = None) -> int:
        """Forget replies kept before that time, of one model or of all; how many."""
        with self._db.writing() as db:
            return db.execute(sql("forget_replies"), {"before": before, "model": model}).rowcount

    def remove(self, run_id: str) -> None:
        """Delete a run and all that is recorded of it. `RunBusy` while it is driven."""
        number, removed = self._hold(run_id), False
        try:
            with self._db.writing() as db:
                bounds = {
                    "run": number,
                    "start": number << SEQ_BITS,
                    "end": (number + 1) << SEQ_BITS,
                }
                for what in ("events", "blobs", "requests", "run"):
                    db.execute(sql(f"remove_{what}"), bounds)
            removed = True
        finally:
            self._locks.free(number, for_good=removed)

    def prune(self, before: float, states: Collection[RunState] = PRUNED) -> list[str]:
        """Remove the runs in these states that ended before that time, and aren't driven.

        Their ids, oldest first.
        """
        with self._db.reading() as db:
            rows = db.execute(
                sql("list_old"), {"before": before, "states": facts_text(list(states))}
            ).fetchall()
        return [run_id for (run_id,) in rows if self._removed(run_id)]

    def backup(self, path: str) -> None:
        """Write a consistent copy of the whole store to `path`, which appears there all at once."""
        target = Path(path).resolve()
        if Path(f"{target}-wal").exists():
            raise StoreError(f"{target} is a store in use: a copy over it would damage it")
        with (
            self._db.reading() as db,
            appearing(target) as part,
            closing(sqlite3.connect(part)) as copy,
        ):
            db.backup(copy)

    def vacuum(self) -> None:
        """Give the room of removed runs back to the disk."""
        self._db.tidy()

    def close(self) -> None:
        """Close it and let go of its runs; harmless the second time."""
        self._db.close()
        while self._spools:
            self._spools.popitem()[1].close()
        self._locks.close()
        self._driving.clear()

    def _number(self, run_id: str) -> int:
        with self._db.reading() as db:
            return int(_one(db, "find_number", run_id)[0])

    def _hold(self, run_id: str) -> int:
        """Take the lock of a run; its number."""
        number = self._number(run_id)
        if not self._locked(number):
            raise busy(self.get(run_id))
        return number

    def _take(self, number: int, run_id: str) -> None:
        if not self._locked(number):  # a stranger's lock: the file was put back from an older copy
            raise RunBusy(f"the lock of the new run {run_id} is held by another process")
        os.ftruncate(
            self._locks.file(number), 0
        )  # before it is known to exist: what is in there was another's

    def _locked(self, number: int) -> bool:
        for patience in _GLANCES:
            with one_sentence(self.path):
                if self._locks.take(number):
                    return True
            pause(patience)
        return False

    def _drive(self, run_id: str, number: int) -> None:
        with one_sentence(self.path):
            self._spools[run_id] = WriteAheadNotes(self._locks.file(number))
        self._driving[run_id] = number

    def _commit_left(self, db: sqlite3.Connection, number: int) -> bool:
        """Commit what the last driver of a run had noted and could commit no more.

        False if there is no such run.
        """
        place = db.execute(sql("find_place"), (number,)).fetchone()
        if place is None:
            return False
        epoch, last, spent = place
        events, then = left_in(self._locks.path(number), epoch, last)
        if events:
            known = facts_of(spent)
            most = {
                name: max(then.get(name, 0), known.get(name, 0))
                for name in then.keys() | known.keys()
            }
            _take_step(db, *_step(number, epoch, events, most))
        return True

    def _recover(self, number: int) -> None:
        """Bring a run up to date whose driver was killed, so that all who read see what it had noted."""
        taken = known = False
        with suppress(StoreError, OSError):  # whoever goes on with the run is told
            if self._locks.is_taken(number):
                return
            try:
                # The lock only while we may write: who wants to drive the run would be turned away
                # meanwhile.
                with self._db.writing(sync=False) as db:
                    taken = self._locks.take(number)
                    found = taken and self._commit_left(db, number)
                known = found  # not before it is committed
            finally:
                if taken:
                    self._locks.free(number, for_good=known)

    def _let_go(self, run_id: str, *, for_good: bool = False) -> None:
        if run_id in self._spools:
            self._spools.pop(run_id).close()
        number = self._driving.pop(run_id, None)
        if number is not None:
            self._locks.free(number, for_good=for_good)

    def _removed(self, run_id: str) -> bool:
        try:
            self.remove(run_id)
        except (RunBusy, NoSuchRun):  # it is driven again, or another process has pruned it
            return False
        return True


def _step(
    number: int, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
) -> tuple[Row, list[Row], list[Row]]:
    """A run's next events, as columns of its own row, of the events, and of their bodies that are long."""
    last, beat = (events[-1].seq, events[-1].wall) if events else (0, 0.0)
    return (last, facts_text(spent), beat, number, epoch), *event_columns(number, events)


def _take_step(
    db: sqlite3.Connection, columns: Row, rows: Sequence[Row], blobs: Sequence[Row]
) -> bool:
    """Write them; False if the run is no longer this driver's."""
    if not db.execute(sql("advance_run"), columns).rowcount:
        return False
    db.executemany(sql("insert_event"), rows)
    if blobs:
        db.executemany(sql("insert_blob"), blobs)
    return True


def _one(db: sqlite3.Connection, statement: str, run_id: str) -> Row:
    row: Row | None = db.execute(sql(statement), (run_id,)).fetchone()
    if row is None:
        raise no_such_run(run_id, (known for (known,) in db.execute(sql("list_ids"))))
    return row


def _is_taken(db: sqlite3.Connection, run_id: str) -> bool:
    return db.execute(sql("find_number"), (run_id,)).fetchone() is not None


def _new_id(db: sqlite3.Connection, name: str) -> str:
    """The next `name-N` that no run was given as its id."""
    while True:
        [(count,)] = db.execute(sql("next_name"), {"name": name}).fetchall()
        if not _is_taken(db, run_id := f"{name}-{count}"):
            return run_id


def _free_id(db: sqlite3.Connection, run_id: str) -> str:
    if _is_taken(db, run_id):
        raise already(run_id)
    return run_id


def _bounds(db: sqlite3.Connection, run_id: str, after: int) -> dict[str, int]:
    (number,) = _one(db, "find_number", run_id)
    start = number << SEQ_BITS
    return {"run": number, "after": start + after, "end": start + (1 << SEQ_BITS)}

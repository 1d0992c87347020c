"""The store in one SQLite file, with a log that is flushed separately from the commits."""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.core.errors import (
    NoSuchRun,
    RunBusy,
    RunExists,
    StoreCorrupt,
    StoreDamaged,
    StoreError,
)
from abreast.core.events import Event
from abreast.store.checked_runs import DrivenRun, damaged, run_of, runs_of, whole_ledgers
from abreast.store.checksums import Fault, StoredEvent, StoredRun, row_sum
from abreast.store.driver_locks import DriverLocks
from abreast.store.os_errors import as_store_error
from abreast.store.port import (
    PRUNED,
    ControlRequest,
    Driver,
    JsonValue,
    OnDamage,
    Recorded,
    Replies,
    RunRow,
    RunState,
)
from abreast.store.rows import (
    LIST_STATEMENTS,
    SEQ_BITS,
    SEQ_MASK,
    Row,
    beneath,
    busy,
    damaged_ledger,
    event_row,
    facts_of,
    facts_text,
    no_such_run,
    recorded_row,
    replaced,
)
from abreast.store.sqlite.database import Database
from abreast.store.sqlite.notes import read_notes
from abreast.store.sqlite.run_rows import (
    Commit,
    RunEnd,
    end_run,
    read_driven,
    seal_run,
    take_run,
)
from abreast.store.sqlite.sql import sql
from abreast.store.sqlite.stored_rows import (
    add_copy,
    integrity_faults,
    read_anything,
    stored_events,
    stored_runs,
)
from abreast.store.sqlite.verify import RunVerifier, check_run_list

# Outcomes beneath a prefix are found by the index if they fill at most this many pages.
MAX_INDEXED_PAGES: Final = 20

# In a list of runs, the events of a run are checked if it has at most so many for each item that
# is counted: 10,000 items are counted, and the check of 40,000 events takes 0.1 s.
EVENTS_PER_COUNTED_ITEM: Final = 4

NOT_FOUND: Final = "a search does not find it"

# Seconds between tries to take a lock: `driven` in another process holds it for a moment.
LOCK_RETRY_DELAYS: Final = (0.02, 0.02, 0.02, 0.02, 0.0)


class SqliteStore:
    """Runs in the SQLite file at `path`, which is created if it doesn't exist (mode 0600).

    Any thread may use it. Other processes may have the same file open, each driving runs of its
    own. A write that has to wait for more than `busy_timeout` seconds raises `StoreLocked`.

        with closing(SqliteStore("runs.db")) as store:
            print([row.id for row in store.runs()])
    """

    _checks = True  # whether rows are checked before they are read

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 30.0) -> None:
        """Open it; a `StoreError` if it is newer, damaged, read-only or on a full disk."""
        # One name for one file, or two drivers could each hold a lock of their own.
        real_path = os.path.realpath(path)
        self.path = real_path
        self.url = f"sqlite:///{real_path}"
        self._db = Database(real_path, busy_timeout)
        self._verifier = RunVerifier(real_path)
        self._locks = DriverLocks(f"{real_path}-locks")
        # Numbers of the runs that this store drives; a number is never used again.
        self._driving: dict[str, int] = {}
        self._written: dict[str, DrivenRun] = {}  # their rows, as this store last wrote them
        for number in self._locks.written_in():
            self._recover(number)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} driving {len(self._driving)}>"

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
        """Create a run, driven by `driver`; its id is `run_id`, or `name-N` if None."""
        columns = {
            "name": name,
            "kind": kind,
            "seed": str(seed),
            "at": driver.since,
            "driver": facts_text(asdict(driver)),
            "tags": facts_text(list(tags)),
            "manifest": facts_text(manifest),
        }
        number = 0
        try:
            with self._db.writing() as db:
                run_id = _new_id(db, name) if run_id is None else _free_id(db, run_id)
                [(number,)] = db.execute(sql("insert_run"), {**columns, "id": run_id}).fetchall()
                seal_run(db, number)
                self._lock_new_run(number, run_id)
            self._driving[run_id] = number
        except BaseException:
            self._locks.free(number)
            raise
        return self.get(run_id)

    def take_over(self, run_id: str, driver: Driver) -> RunRow:
        """Become the driver of an existing run: its epoch goes up by one.

        Raises `RunBusy` if another driver of it is alive.
        """
        number = self._lock_run(run_id)
        try:
            with self._db.reading() as db:
                self._verify(db, run_id, ends=True)
            with self._db.writing() as db:
                self._commit_notes(db, number)
                take_run(db, number, self.path, facts_text(asdict(driver)))
            row = self.get(run_id)  # raises if it was removed just before it was locked
            self._driving[run_id] = number
        except BaseException:
            self._locks.free(number)
            raise
        return row

    def driven(self, run_id: str) -> bool:
        """Whether a live process drives the run now.

        A `running` run without a driver has crashed.
        """
        number = self._number(run_id)
        with as_store_error(self.path):
            is_taken = self._locks.is_taken(number)
        if not is_taken and self._locks.path(number).exists():  # `is_taken` removed an empty one
            self._recover(number)
        return is_taken

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Write events in one transaction; `sync` flushes them to the disk.

        Raises `DriverReplaced` if the epoch is not the run's.
        """
        number = self._driving.get(run_id) or self._number(run_id)
        # Encoded before the write lock is taken, so that other writers don't wait for it.
        commit = Commit(number, events, spent)
        driven = self._written.get(run_id)
        with self._db.writing(sync=False) as db:
            written = commit.write(db, driven) if driven and driven.run.epoch == epoch else None
            if written is None or driven is None:  # the first commit, or the row was changed
                driven = read_driven(db, self.path, run_id, number)
                written = commit.write(db, driven) if driven.run.epoch == epoch else None
            if written is None:
                raise replaced(self.get(run_id), epoch)
        driven.run = written
        self._written[run_id] = driven

    def sync(self) -> None:
        """Flush everything committed so far to the disk."""
        self._db.sync()

    def end(self, run_id: str, epoch: int, state: RunState, reason: str, at: float) -> None:
        """Record how the run ended, and stop driving it."""
        with self._db.writing() as db:
            (number,) = _select_run(db, "find_number", run_id, self.path)
            is_ended = end_run(db, number, epoch, RunEnd(state, reason, float(at)))
        if not is_ended:
            raise replaced(self.get(run_id), epoch)
        self.let_go(run_id, for_good=True)

    def let_go(self, run_id: str, *, for_good: bool = False) -> None:
        """Stop driving the run without recording anything (as a crash would).

        With `for_good`, nothing is left of its lock.
        """
        self._written.pop(run_id, None)
        number = self._driving.pop(run_id, None)
        if number is not None:
            self._locks.free(number, for_good=for_good)

    def newest(self, name: str) -> RunRow | None:
        """The newest run with that name."""
        with self._db.reading() as db:
            check_run_list(db, self.path)
            row = db.execute(sql("newest_run"), (name,)).fetchone()
        return run_of(self.path, row) if row else None

    def get(self, run_id: str) -> RunRow:
        """The run with that id; `NoSuchRun` names some that exist."""
        with self._db.reading() as db:
            return run_of(self.path, _select_run(db, "find_run", run_id, self.path))

    def runs(
        self,
        *,
        name: str | None = None,
        state: str | None = None,
        tag: str | None = None,
        limit: int = 100,
        on_damage: OnDamage | None = None,
    ) -> list[RunRow]:
        """Runs, newest first; `on_damage` is called for those whose rows are damaged."""
        with self._db.reading() as db:
            try:
                check_run_list(db, self.path)
            except StoreDamaged as error:
                if on_damage is None:
                    raise
                on_damage(error)
            rows = db.execute(
                sql("list_runs"), {"name": name, "state": state, "tag": tag, "limit": limit}
            ).fetchall()
        return runs_of(self.path, rows, on_damage)

    def recorded(self, run_id: str, paths: Collection[str]) -> dict[str, Recorded]:
        """The recorded outcomes of exactly these paths."""
        statement = sql("find_outcome")
        with self._db.reading() as db:
            number = self._verify(db, run_id)
            rows = [row for path in paths for row in db.execute(statement, (number, path))]
        return {row[0]: recorded_row(row) for row in rows}

    def outcomes(
        self, run_id: str, *, prefix: str = "", after: int = 0, limit: int = 1000
    ) -> list[Recorded]:
        """The newest outcome of each path beneath `prefix`, in order of `seq`, after that `seq`."""
        most = MAX_INDEXED_PAGES * limit
        with self._db.reading() as db:
            place = _bounds(self._verify(db, run_id), after)
            bounds = {**place, **beneath(prefix), "limit": limit, "most": most}
            by_index = prefix and db.execute(sql("count_settled"), bounds).fetchone()[0] < most
            rows = db.execute(
                sql("list_outcomes_beneath" if by_index else "list_outcomes"), bounds
            ).fetchall()
            self._check_search(db, run_id, place["after"])
        if any(path is None for path, *_ in rows):
            lost = [(number & SEQ_MASK) for path, number, *_ in rows if path is None]
            raise damaged(self.path, run_id, [Fault(seq, seq, NOT_FOUND) for seq in lost])
        return [recorded_row(row) for row in rows]

    def count_states(self, run_id: str, most: int) -> dict[str, int]:
        """How many items are in each state, counting at most `most` of the newest outcomes."""
        with self._db.reading() as db:
            number = self._verify(db, run_id, most=most * EVENTS_PER_COUNTED_ITEM)
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
        """Events after that `seq`, in order."""
        statement = sql(LIST_STATEMENTS.get(frozenset(kinds), "list_events"))
        selection = {"kinds": facts_text(list(kinds)) if kinds else None, "limit": limit}
        with self._db.reading() as db:
            place = _bounds(self._verify(db, run_id), after)
            bounds = {**place, **beneath(prefix), **selection}
            rows = db.execute(statement, bounds).fetchall()
            self._check_search(db, run_id, place["after"])
        return [event_row(row) for row in rows]

    def ask(self, run_id: str, kind: str, data: Mapping[str, JsonValue], at: float) -> int:
        """Store a request for the run's driver; returns its id."""
        with self._db.writing() as db:
            (number,) = _select_run(db, "find_number", run_id, self.path)
            text = facts_text(data)
            [(request,)] = db.execute(
                sql("insert_request"),
                (number, kind, text, at, row_sum((run_id, kind, text, float(at)))),
            ).fetchall()
        return int(request)

    def asked(self, run_id: str) -> list[ControlRequest]:
        """Requests not yet carried out, oldest first."""
        with self._db.reading() as db:
            number = _select_run(db, "find_number", run_id, self.path)
            rows = db.execute(sql("list_requests"), number).fetchall()
        return [
            ControlRequest(request_id, run_id, kind, facts_of(data), at)
            for request_id, kind, data, at, total in rows
            if total in (None, row_sum((run_id, kind, data, at)))  # a damaged one is not obeyed
        ]

    def answer(self, request_id: int, at: float) -> None:
        """Mark a request as carried out."""
        with self._db.writing() as db:
            db.execute(sql("answer_request"), (at, request_id))

    def find_reply(self, key: str) -> str | None:
        """The cached reply with that key, if there is one."""
        with self._db.reading() as db:
            row = db.execute(sql("find_reply"), (key,)).fetchone()
        if row is None:
            return None
        model, body, kept, total = row
        # A damaged reply is asked for again.
        return body if total in (None, row_sum((key, model, body, kept))) else None

    def keep_reply(self, key: str, model: str, body: str, at: float) -> None:
        """Cache a model's reply under a key; it is on disk when this returns."""
        with self._db.writing() as db:
            columns = (key, model, body, float(at))
            db.execute(sql("keep_reply"), (*columns, row_sum(columns)))

    def change_ledger(self, name: str, change: Callable[[str | None, float], str]) -> None:
        """Replace the ledger of a lane by `change(text, now)`, in one transaction."""
        with self._db.writing() as db:
            text, total = db.execute(sql("find_ledger"), (name,)).fetchone() or (None, None)
            if text is not None and total != row_sum((name, text)):
                raise StoreCorrupt(damaged_ledger(name, self.path))
            text = change(text, SYSTEM_CLOCK.wall())
            db.execute(sql("write_ledger"), (name, text, row_sum((name, text))))

    def ledgers(self) -> dict[str, str]:
        """The ledgers of all shared lanes, by name."""
        with self._db.reading() as db:
            rows = db.execute(sql("list_ledgers")).fetchall()
        return whole_ledgers(rows)

    def remove_ledger(self, name: str) -> bool:
        """Forget what is held and spent of a shared lane; False if there is no such ledger."""
        with self._db.writing() as db:
            return db.execute(sql("remove_ledger"), (name,)).rowcount > 0

    def replies(self) -> list[Replies]:
        """Statistics of the cached replies, by model."""
        with self._db.reading() as db:
            return [Replies(*row) for row in db.execute(sql("count_replies"))]

    def forget_replies(self, before: float, model: str | None = None) -> int:
        """Delete replies cached before that time, of one model or of all; returns how many."""
        with self._db.writing() as db:
            return db.execute(sql("forget_replies"), {"before": before, "model": model}).rowcount

    def remove(self, run_id: str) -> None:
        """Delete a run and all its records. `RunBusy` while it is driven."""
        number, is_removed = self._lock_run(run_id), False
        try:
            with self._db.writing() as db:
                bounds = {
                    "run": number,
                    "start": number << SEQ_BITS,
                    "end": (number + 1) << SEQ_BITS,
                }
                for what in ("events", "blobs", "requests", "run"):
                    db.execute(sql(f"remove_{what}"), bounds)
            is_removed = True
        finally:
            self._locks.free(number, for_good=is_removed)

    def prune(self, before: float, states: Collection[RunState] = PRUNED) -> list[str]:
        """Remove the runs in these states that ended before that time and aren't driven.

        Returns their ids, oldest first.
        """
        with self._db.reading() as db:
            rows = db.execute(
                sql("list_old"), {"before": before, "states": facts_text(list(states))}
            ).fetchall()
        removed = []
        for (run_id,) in rows:
            with suppress(RunBusy, NoSuchRun):  # driven again, or removed by another process
                self.remove(run_id)
                removed.append(run_id)
        return removed

    def backup(self, path: str) -> None:
        """Write a consistent copy of the whole store to `path`, atomically."""
        target = Path(path).resolve()
        if Path(f"{target}-wal").exists():
            raise StoreError(f"{target} is a store in use: a copy over it would damage it")
        with (
            self._db.reading() as db,
            write_atomically(target) as part,
            closing(sqlite3.connect(part)) as copy,
        ):
            db.backup(copy)

    def stored_runs(self) -> list[StoredRun]:
        """All runs as they are stored, oldest first; nothing is checked."""
        with self._reading_anything() as db:
            return stored_runs(db)

    def stored_events(self, run_id: str, last: int | None = None) -> Iterator[StoredEvent]:
        """All events of a run as they are stored, in order; nothing is checked."""
        with self._reading_anything() as db:
            number, _, _, last_seq, _ = _select_run(db, "find_mark", run_id, self.path)
            for event in stored_events(db, number, last_seq):
                if last is not None and event.seq > last:
                    break
                yield event

    def add_copy(self, run: StoredRun, events: Iterable[StoredEvent]) -> None:
        """Add a run as it is stored elsewhere; `RunExists` if there is one of its id."""
        with self._db.writing() as db:
            _free_id(db, run.id)
            add_copy(db, run, events)

    def integrity_faults(self) -> list[str]:
        """What SQLite finds wrong with the file, and the rows that belong to no run."""
        with self._reading_anything() as db:
            return list(integrity_faults(db))

    def vacuum(self) -> None:
        """Give the disk space of removed runs back."""
        self._db.tidy()

    def close(self) -> None:
        """Close it and stop driving its runs; a second call does nothing."""
        self._db.close()
        self._locks.close()
        self._driving.clear()
        self._written.clear()

    @contextmanager
    def _reading_anything(self) -> Iterator[sqlite3.Connection]:
        """A connection on which a text that is no UTF-8 is no error."""
        with self._db.reading_damaged() as db:
            usual = db.text_factory
            read_anything(db)
            try:
                yield db
            finally:
                db.text_factory = usual

    def _number(self, run_id: str) -> int:
        with self._db.reading() as db:
            return int(_select_run(db, "find_number", run_id, self.path)[0])

    def _verify(
        self, db: sqlite3.Connection, run_id: str, *, ends: bool = False, most: int | None = None
    ) -> int:
        """Check the rows of a run before they are read, and return its number.

        What this store writes itself is not checked again; nor, with `most`, a run of more events.
        """
        number = self._driving.get(run_id)
        if number is None:
            place = _select_run(db, "find_mark", run_id, self.path)
            number, state, _, last_seq, _ = place
            if self._checks and (most is None or last_seq <= most):
                self._verifier.verify(db, run_id, place, ends=ends or state != "running")
        return number

    def _check_search(self, db: sqlite3.Connection, run_id: str, after: int) -> None:
        """Raise `StoreDamaged` if a scan did not start at the event after `after`.

        The inner pages of a table have no checksum; a wrong one sends a search elsewhere.
        """
        if not self._checks or run_id in self._driving:
            return
        _, _, _, last_seq, _ = _select_run(db, "find_mark", run_id, self.path)
        seq = (after & SEQ_MASK) + 1
        if seq <= last_seq and db.execute(sql("find_event"), (after + 1,)).fetchone() is None:
            raise damaged(self.path, run_id, [Fault(seq, seq, NOT_FOUND)])

    def _lock_run(self, run_id: str) -> int:
        number = self._number(run_id)
        if not self._try_lock(number):
            raise busy(self.get(run_id))
        return number

    def _lock_new_run(self, number: int, run_id: str) -> None:
        # Another process can hold it if the store was restored from an older copy.
        if not self._try_lock(number):
            raise RunBusy(f"the lock of the new run {run_id} is held by another process")
        # Before the run is committed: what is in the file belonged to another run.
        self._locks.empty(number)

    def _try_lock(self, number: int) -> bool:
        for delay in LOCK_RETRY_DELAYS:
            with as_store_error(self.path):
                if self._locks.take(number):
                    return True
            pause(delay)
        return False

    def _commit_notes(self, db: sqlite3.Connection, number: int) -> bool:
        """Commit the events that a driver of an earlier version had noted and not committed.

        False if there is no such run.
        """
        row = db.execute(sql("find_place"), (number,)).fetchone()
        if row is None:
            return False
        epoch, last_seq, spent_text = row
        events, noted_spent = read_notes(self._locks.path(number), epoch, last_seq)
        if events:
            committed_spent = facts_of(spent_text)
            spent = {
                name: max(noted_spent.get(name, 0), committed_spent.get(name, 0))
                for name in noted_spent.keys() | committed_spent.keys()
            }
            [run_id] = db.execute(sql("find_id"), (number,)).fetchone()
            driven = read_driven(db, self.path, run_id, number)
            Commit(number, events, spent).write(db, driven)
        return True

    def _recover(self, number: int) -> None:
        """Commit the notes of a run whose driver was killed, so that readers see its events."""
        is_taken = is_committed = False
        with suppress(StoreError, OSError):  # the next driver of the run raises the error
            if self._locks.is_taken(number):
                return
            try:
                # The run's lock is taken only after the write lock of the database: meanwhile a new
                # driver would be refused.
                with self._db.writing(sync=False) as db:
                    is_taken = self._locks.take(number)
                    found = is_taken and self._commit_notes(db, number)
                is_committed = found
            finally:
                if is_taken:
                    self._locks.free(number, for_good=is_committed)


def _select_run(db: sqlite3.Connection, statement: str, run_id: str, path: str) -> Row:
    row: Row | None = db.execute(sql(statement), (run_id,)).fetchone()
    if row is None:
        check_run_list(db, path)
        raise no_such_run(run_id, (known for (known,) in db.execute(sql("list_ids"))))
    return row


def _is_taken(db: sqlite3.Connection, run_id: str) -> bool:
    return db.execute(sql("find_number"), (run_id,)).fetchone() is not None


def _new_id(db: sqlite3.Connection, name: str) -> str:
    while True:
        [(count,)] = db.execute(sql("next_name"), {"name": name}).fetchall()
        if not _is_taken(db, run_id := f"{name}-{count}"):
            return run_id


def _free_id(db: sqlite3.Connection, run_id: str) -> str:
    if _is_taken(db, run_id):
        raise RunExists(
            f"there is a run {run_id!r} already; "
            "go on with it by `abreast resume`, or choose another id"
        )
    return run_id


def _bounds(number: int, after: int) -> dict[str, int]:
    start = number << SEQ_BITS
    return {"run": number, "after": start + after, "end": start + (1 << SEQ_BITS)}


@contextmanager
def write_atomically(target: Path) -> Iterator[Path]:
    """A temporary file that is renamed to `target` at the end, and removed if anything fails.

    Its mode is 0600; errors are raised as a `StoreError` about `target`.
    """
    part = Path(f"{target}.{os.getpid()}.part")
    with as_store_error(str(target)):
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        try:
            yield part
            part.replace(target)
        except BaseException:
            part.unlink()
            raise

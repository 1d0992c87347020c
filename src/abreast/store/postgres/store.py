"""The store in a PostgreSQL database, which several hosts may use at the same time."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Final
from uuid import uuid4

from abreast.core.errors import NoSuchRun, RunBusy, RunExists, StoreCorrupt, StoreError
from abreast.core.events import Event
from abreast.store.checksums import StoredEvent, StoredRun, fixed_sum, row_sum, run_sum
from abreast.store.port import PRUNED, Driver, JsonValue, RunRow, RunState
from abreast.store.postgres.address import parse_address
from abreast.store.postgres.answer_watch import ANSWER_SECONDS
from abreast.store.postgres.columns import CommitColumns, copied_columns
from abreast.store.postgres.database import Connection, PostgresDatabase
from abreast.store.postgres.driver_process import has_ended, this_process
from abreast.store.postgres.leases import LEASE_TIMES, Leases, LeaseTimes
from abreast.store.postgres.reader import STORED_PAGE, PostgresReader
from abreast.store.postgres.server_errors import as_store_error
from abreast.store.rows import SEQ_BITS, busy, damaged_ledger, facts_text, replaced

# Seconds for which a change of a ledger is tried again: shorter than the lease of a shared lane.
LEDGER_PATIENCE: Final = 5.0


class PostgresStore(PostgresReader):
    """Runs in the database at `url`, in the tables of the schema `abreast`.

    `?schema=NAME` in the address names another schema. Any thread may use the store. Other
    processes and hosts may use the same database, each driving runs of its own: a driver holds a
    lease of its run, which it renews, and a fencing number, which each of its commits proves.

    A commit is on the server's disk when it returns. If the connection is lost, commits are tried
    again for `reconnect_timeout` seconds; one that was made already is recognised.

        with closing(PostgresStore("postgresql://ann@db.example.com/runs")) as store:
            print([row.id for row in store.runs()])
    """

    def __init__(
        self,
        url: str,
        *,
        busy_timeout: float = 30.0,
        reconnect_timeout: float = 300.0,
        answer_timeout: float = ANSWER_SECONDS,
        lease: LeaseTimes = LEASE_TIMES,
    ) -> None:
        """Open it; ValueError for a wrong address, a `StoreError` if it can't be used."""
        address = parse_address(url)
        self.url = address.url
        self._db = PostgresDatabase(
            address,
            busy_timeout=busy_timeout,
            reconnect_timeout=reconnect_timeout,
            answer_timeout=answer_timeout,
        )
        self._leases = Leases(self._renew_leases, lease)
        # Runs as they were after this store's newest commit; the next one checks that they are.
        self._newest: dict[str, StoredRun] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url} driving {len(self._leases)}>"

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
        since = float(driver.since)
        fixed = (str(seed), since, facts_text(list(tags)), facts_text(manifest))
        named_driver = facts_text(asdict(driver))
        token = self._leases.new_token()

        def create(db: Connection) -> tuple[int, str]:
            made = self._one(db, "find_held", holder=token)
            if made is not None:  # the answer to an earlier try was lost
                return made[0], made[1]
            new_id = self._new_id(db, name) if run_id is None else self._free_id(db, run_id)
            run = StoredRun(
                *(new_id, name, kind, *fixed),
                state="running",
                epoch=1,
                ended=None,
                driver=named_driver,
                reason="",
                checked_from=1,
                fixed=None,
                beat=since,
                last_seq=0,
                spent="{}",
                tail=None,
                settled=0,
            )
            run = _sealed(run._replace(fixed=fixed_sum(run)))
            [(number,)] = self._all(db, "insert_run", **run._asdict())
            self._do(db, "insert_lease", run=number, **self._lease(token))
            return number, new_id

        number, new_id = self._db.transact(create)
        self._leases.add(new_id, number, token)
        return self.get(new_id)

    def take_over(self, run_id: str, driver: Driver) -> RunRow:
        """Become the driver of an existing run: its epoch goes up by one.

        Raises `RunBusy` if another driver of it is alive.
        """
        token, named_driver = self._leases.new_token(), facts_text(asdict(driver))

        def take(db: Connection) -> int:
            number, holder, is_driven = self._lock_lease(db, run_id)
            if holder == token:  # the answer to an earlier try was lost
                return number
            if is_driven:
                raise busy(self._get(db, run_id))
            self._do(db, "take_lease", run=number, **self._lease(token))
            run = self._stored(db, run_id)
            run = run._replace(epoch=run.epoch + 1, driver=named_driver, ended=None)
            run = _sealed(run._replace(state="running", reason=""))
            self._do(db, "take_run", **run._asdict())
            return number

        self._leases.add(run_id, self._db.transact(take), token)
        return self.get(run_id)

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Write events in one transaction, which is on disk when this returns.

        Raises `DriverReplaced` if the epoch is not the run's.
        """
        number = self._leases.number(run_id) or self._db.read(lambda db: self._number(db, run_id))
        token = uuid4().hex
        with as_store_error(self.url):
            columns = CommitColumns(number, events, spent)

        def append(db: Connection) -> None:
            run = self._newest.get(run_id) or self._stored(db, run_id)
            while run.epoch == epoch:
                advanced, parameters = columns.after(number, run)
                if self._all(db, "commit", **parameters, token=token) == [(1,)]:
                    self._newest[run_id] = advanced
                    return
                run = self._newest[run_id] = self._stored(db, run_id)
                if self._one(db, "find_commit", id=run_id) == (token,):
                    return  # made by an earlier try, whose answer was lost
            raise replaced(self._get(db, run_id), epoch)

        self._db.write(append)

    def sync(self) -> None:
        """Do nothing: what is committed is on disk."""

    def end(self, run_id: str, epoch: int, state: RunState, reason: str, at: float) -> None:
        """Record how the run ended, and stop driving it."""

        def record_end(db: Connection) -> None:
            while (run := self._stored(db, run_id)).epoch == epoch:
                ended = _sealed(
                    run._replace(state=state, reason=reason, ended=float(at), driver=None)
                )
                parameters = {**ended._asdict(), "sum_before": run.sum}
                if self._all(db, "end_run", **parameters) == [(1,)]:
                    return
            raise replaced(self._get(db, run_id), epoch)

        self._db.write(record_end)
        self._drop(run_id)

    def let_go(self, run_id: str) -> None:
        """Stop driving the run without recording anything (as a crash would).

        If the server can't be reached, the lease expires by itself.
        """
        token = self._drop(run_id)
        if token is not None:
            self._free_lease(token)

    def ask(self, run_id: str, kind: str, data: Mapping[str, JsonValue], at: float) -> int:
        """Store a request for the run's driver; returns its id."""
        text, when = facts_text(data), float(at)
        columns = {
            "kind": kind,
            "data": text,
            "at": when,
            "sum": row_sum((run_id, kind, text, when)),
            "token": uuid4().hex,
        }

        def insert(db: Connection) -> int:
            number = self._number(db, run_id)
            [(request,)] = self._all(db, "insert_request", run=number, **columns)
            return int(request)

        return self._db.transact(insert)

    def answer(self, request_id: int, at: float) -> None:
        """Mark a request as carried out."""
        self._db.transact(lambda db: self._do(db, "answer_request", id=request_id, at=at))

    def keep_reply(self, key: str, model: str, body: str, at: float) -> None:
        """Cache a model's reply under a key; it is on disk when this returns."""
        with as_store_error(self.url):
            total = row_sum((key, model, body, float(at)))
        columns = {"key": key, "model": model, "body": body, "at": float(at), "sum": total}
        self._db.transact(lambda db: self._do(db, "keep_reply", **columns))

    def change_ledger(self, name: str, change: Callable[[str | None, float], str]) -> None:
        """Replace the ledger of a lane by `change(text, now)`, in one transaction."""

        def work(db: Connection) -> None:
            self._do(db, "insert_ledger", name=name)
            [(text, total, now)] = self._all(db, "lock_ledger", name=name)
            if text and total != row_sum((name, text)):
                raise StoreCorrupt(damaged_ledger(name, self.url))
            text = change(text or None, now)
            self._do(db, "write_ledger", name=name, body=text, sum=row_sum((name, text)))

        self._db.transact(work, patience=LEDGER_PATIENCE)

    def remove_ledger(self, name: str) -> bool:
        """Forget what is held and spent of a shared lane; False if there is no such ledger."""
        return self._db.transact(lambda db: self._do(db, "remove_ledger", name=name)) > 0

    def forget_replies(self, before: float, model: str | None = None) -> int:
        """Delete replies cached before that time, of one model or of all; returns how many."""
        return self._db.transact(
            lambda db: self._do(db, "forget_replies", before=before, model=model)
        )

    def remove(self, run_id: str) -> None:
        """Delete a run and all its records. `RunBusy` while it is driven."""
        was_tried = False

        def delete(db: Connection) -> None:
            nonlocal was_tried
            if was_tried and self._one(db, "find_number", id=run_id) is None:
                return  # the answer to an earlier try was lost
            number, _, is_driven = self._lock_lease(db, run_id)
            if is_driven:
                raise busy(self._get(db, run_id))
            was_tried = True
            bounds = {"run": number, "start": number << SEQ_BITS, "end": (number + 1) << SEQ_BITS}
            for what in ("events", "blobs", "requests", "lease", "run"):
                self._do(db, f"remove_{what}", **bounds)

        self._db.transact(delete)

    def prune(self, before: float, states: Collection[RunState] = PRUNED) -> list[str]:
        """Remove the runs in these states that ended before that time and aren't driven.

        Returns their ids, oldest first.
        """
        rows = self._db.read(
            lambda db: self._all(db, "list_old", before=before, states=list(states))
        )
        removed = []
        for (run_id,) in rows:
            with suppress(RunBusy, NoSuchRun):  # driven again, or removed by another process
                self.remove(run_id)
                removed.append(run_id)
        return removed

    def backup(self, path: str) -> None:
        """Write a consistent copy of the whole store to `path`, as a store in one SQLite file."""
        from abreast.store.postgres.backup import write_backup

        write_backup(self._db, path)

    def add_copy(self, run: StoredRun, events: Iterable[StoredEvent]) -> None:
        """Add a run as it is stored elsewhere, in one transaction; `RunExists` if there is one.

        It is not tried again if the connection is lost: the events can be read once.
        """

        def add(db: Connection) -> None:
            self._free_id(db, run.id)
            [(number,)] = self._all(db, "insert_run", **run._asdict())
            self._do(db, "insert_free_lease", run=number)
            source = iter(events)
            while page := list(islice(source, STORED_PAGE)):
                self._do(db, "insert_events", **copied_columns(number, page))

        self._db.transact(add, patience=0.0)

    def vacuum(self) -> None:
        """Let the server use the disk space of removed runs again."""
        self._db.write(lambda db: self._do(db, "vacuum"))

    def close(self) -> None:
        """Close it and stop driving its runs; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for token in self._leases.close():
            self._free_lease(token)
        self._db.close()

    def _drop(self, run_id: str) -> str | None:
        self._newest.pop(run_id, None)
        return self._leases.drop(run_id)

    def _renew_leases(self, tokens: list[str]) -> None:
        times = self._leases.times
        self._db.write(
            lambda db: self._all(db, "renew_leases", holders=tokens, seconds=times.lasts),
            patience=times.renewed,
        )

    def _free_lease(self, token: str) -> None:
        with suppress(StoreError):
            self._db.write(lambda db: self._do(db, "free_lease", holder=token), patience=0.0)

    def _lease(self, token: str) -> dict[str, object]:
        return {
            "holder": token,
            "process": this_process(),
            "seconds": self._leases.times.lasts,
        }

    def _lock_lease(self, db: Connection, run_id: str) -> tuple[int, str | None, bool]:
        """Lock the lease of a run: its number, the token of its driver, whether that one lives."""
        lease = self._one(db, "lock_lease", run=self._number(db, run_id))
        if lease is None:  # removed just before it was locked
            return self._number(db, run_id), None, False
        number, holder, process, is_valid = lease
        return number, holder, is_valid and not has_ended(process)

    def _new_id(self, db: Connection, name: str) -> str:
        while True:
            [(count,)] = self._all(db, "next_name", name=name)
            if self._one(db, "find_number", id=(run_id := f"{name}-{count}")) is None:
                return run_id

    def _free_id(self, db: Connection, run_id: str) -> str:
        if self._one(db, "find_number", id=run_id) is not None:
            raise RunExists(
                f"there is a run {run_id!r} already; "
                "go on with it by `abreast resume`, or choose another id"
            )
        return run_id


def _sealed(run: StoredRun) -> StoredRun:
    return run._replace(sum=run_sum(run))

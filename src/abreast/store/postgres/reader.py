"""The reading half of the PostgreSQL store: runs, events, outcomes, requests and replies."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from abreast.core.events import ATTEMPT_FAILED, CALL_STARTED, LIMIT_WAITED, Event
from abreast.store.checked_runs import damaged, run_of, runs_of, whole_ledgers
from abreast.store.checksums import (
    Fault,
    StoredEvent,
    StoredRun,
    is_whole,
    row_sum,
    run_key,
)
from abreast.store.port import ControlRequest, OnDamage, Recorded, Replies, RunRow
from abreast.store.postgres.columns import beneath, event_of, recorded_of, stored_event
from abreast.store.postgres.database import Connection, PostgresDatabase
from abreast.store.postgres.driver_process import has_ended
from abreast.store.rows import LIST_STATEMENTS, SEQ_BITS, Row, facts_of, facts_text, no_such_run

# Outcomes beneath a prefix are found by the index if they fill at most this many pages.
MAX_INDEXED_PAGES: Final = 20
STORED_PAGE: Final = 1000  # events that are read at once
# Kinds of events about one item that have an index by its path.
_DETAILS: Final = frozenset({ATTEMPT_FAILED, CALL_STARTED, LIMIT_WAITED})


class PostgresReader:
    """What a store in PostgreSQL can tell; each call is a read of its own."""

    url: str
    _db: PostgresDatabase

    def driven(self, run_id: str) -> bool:
        """Whether a live process drives the run now.

        A `running` run without a driver has crashed. That is known once its driver's lease has
        expired, or at once if the driver was a process on this machine.
        """

        def look(db: Connection) -> bool:
            number = self._number(db, run_id)
            lease = self._one(db, "find_lease", run=number)
            return bool(lease and lease[0] and not has_ended(lease[1]))

        return self._db.read(look)

    def newest(self, name: str) -> RunRow | None:
        """The newest run with that name."""
        row = self._db.read(lambda db: self._one(db, "newest_run", name=name))
        return run_of(self.url, row) if row else None

    def get(self, run_id: str) -> RunRow:
        """The run with that id; `NoSuchRun` names some that exist."""
        return self._db.read(lambda db: self._get(db, run_id))

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
        # The text of a tag as it is in the JSON of a list.
        tag_text = None if tag is None else facts_text([tag])[1:-1]
        rows = self._db.read(
            lambda db: self._all(db, "list_runs", name=name, state=state, tag=tag_text, limit=limit)
        )
        return runs_of(self.url, rows, on_damage)

    def recorded(self, run_id: str, paths: Collection[str]) -> dict[str, Recorded]:
        """The recorded outcomes of exactly these paths."""

        def look(db: Connection) -> list[Row]:
            number = self._number(db, run_id)
            wanted = [path.encode() for path in paths]
            return self._all(db, "find_outcomes", run=number, paths=wanted)

        found = map(recorded_of, self._checked(run_id, self._db.read(look)))
        return {recorded.path: recorded for recorded in found}

    def outcomes(
        self, run_id: str, *, prefix: str = "", after: int = 0, limit: int = 1000
    ) -> list[Recorded]:
        """The newest outcome of each path beneath `prefix`, in order of `seq`, after that `seq`."""
        most = MAX_INDEXED_PAGES * limit

        def look(db: Connection) -> list[Row]:
            bounds = {**self._bounds(db, run_id, after), **beneath(prefix)}
            by_index = False
            if prefix:
                [(count,)] = self._all(db, "count_settled", **bounds, most=most)
                by_index = count < most
            statement = "list_outcomes_beneath" if by_index else "list_outcomes"
            return self._all(db, statement, **bounds, limit=limit)

        if not after and not prefix:
            self._db.read(lambda db: self._check_count(db, run_id))
        return [recorded_of(event) for event in self._checked(run_id, self._db.read(look))]

    def count_states(self, run_id: str, most: int) -> dict[str, int]:
        """How many items are in each state, counting at most `most` of the newest outcomes."""

        def look(db: Connection) -> list[Row]:
            return self._all(db, "count_states", run=self._number(db, run_id), most=most)

        return dict(self._db.read(look))

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
        statement = LIST_STATEMENTS.get(frozenset(kinds), "list_events")
        if prefix and kinds and _DETAILS.issuperset(kinds):
            statement = "list_details"

        def look(db: Connection) -> list[Row]:
            bounds = {**self._bounds(db, run_id, after), **beneath(prefix)}
            return self._all(db, statement, **bounds, kinds=list(kinds) or None, limit=limit)

        return [event_of(event) for event in self._checked(run_id, self._db.read(look))]

    def asked(self, run_id: str) -> list[ControlRequest]:
        """Requests not yet carried out, oldest first."""

        def look(db: Connection) -> list[Row]:
            return self._all(db, "list_requests", run=self._number(db, run_id))

        return [
            ControlRequest(request_id, run_id, kind, facts_of(data), at)
            for request_id, kind, data, at, total in self._db.read(look)
            if total in (None, row_sum((run_id, kind, data, at)))  # a damaged one is not obeyed
        ]

    def find_reply(self, key: str) -> str | None:
        """The cached reply with that key, if there is one."""
        row = self._db.read(lambda db: self._one(db, "find_reply", key=key))
        if row is None:
            return None
        model, body, kept, total = row
        # A damaged reply is asked for again.
        return str(body) if total in (None, row_sum((key, model, body, kept))) else None

    def ledgers(self) -> dict[str, str]:
        """The ledgers of all shared lanes, by name."""
        return whole_ledgers(self._db.read(lambda db: self._all(db, "list_ledgers")))

    def replies(self) -> list[Replies]:
        """Statistics of the cached replies, by model."""
        return [Replies(*row) for row in self._db.read(lambda db: self._all(db, "count_replies"))]

    def stored_runs(self) -> list[StoredRun]:
        """All runs as they are stored, oldest first; nothing is checked."""
        rows = self._db.read(lambda db: self._all(db, "list_stored_runs"))
        return [StoredRun(*row) for row in rows]

    def stored_events(self, run_id: str, last: int | None = None) -> Iterator[StoredEvent]:
        """All events of a run as they are stored, in order; nothing is checked."""
        number = self._db.read(lambda db: self._number(db, run_id))
        base = number << SEQ_BITS
        end = base + (1 << SEQ_BITS if last is None else last + 1)
        bounds = {"base": base, "end": end, "limit": STORED_PAGE}
        after = base
        while rows := self._db.read(
            lambda db, after=after: self._all(db, "list_stored", **bounds, after=after)  # type: ignore[misc]
        ):
            yield from map(stored_event, rows)
            after = base + rows[-1][0]

    def integrity_faults(self) -> list[str]:
        """The requests, replies and ledgers that are not as they were written."""
        requests = self._db.read(lambda db: self._all(db, "check_requests"))
        replies = self._db.read(lambda db: self._all(db, "check_replies"))
        ledgers = self._db.read(lambda db: self._all(db, "list_ledgers"))
        return [
            f"{what} {name} was changed"
            for what, rows in (
                ("request", requests),
                ("cached reply", replies),
                ("ledger of lane", ledgers),
            )
            for name, total, *columns in rows
            if total not in (None, row_sum(columns))
        ]

    def _checked(self, run_id: str, rows: Iterable[Row]) -> list[StoredEvent]:
        """The events in these rows; `StoreDamaged` names those that are not as written."""
        events, key = list(map(stored_event, rows)), run_key(run_id)
        faults = [
            Fault(event.seq, event.seq, "changed") for event in events if not is_whole(key, event)
        ]
        if faults:
            raise damaged(self.url, run_id, faults)
        return events

    def _check_count(self, db: Connection, run_id: str) -> None:
        """Raise `StoreDamaged` if an ended run has lost outcomes, or has more than it recorded.

        Rows that are there are checked as they are read; `abreast store check` follows the chain.
        """
        run = self._stored(db, run_id)
        if run.state == "running" or run.settled is None:
            return
        [(count,)] = self._all(db, "count_outcomes", run=self._number(db, run_id))
        if count != run.settled:
            what = f"{count} outcomes are there, and {run.settled} were recorded"
            raise damaged(self.url, run_id, [Fault(0, 0, what)])

    def _all(self, db: Connection, statement: str, **parameters: object) -> list[Row]:
        return db.execute(self._db.sql(statement), parameters, binary=True).fetchall()

    def _one(self, db: Connection, statement: str, **parameters: object) -> Row | None:
        return db.execute(self._db.sql(statement), parameters, binary=True).fetchone()

    def _do(self, db: Connection, statement: str, **parameters: object) -> int:
        """Execute a statement that returns no rows; returns how many rows it changed."""
        return db.execute(self._db.sql(statement), parameters).rowcount

    def _select(self, db: Connection, statement: str, run_id: str) -> Row:
        row = self._one(db, statement, id=run_id)
        if row is None:
            raise no_such_run(run_id, (known for (known,) in self._all(db, "list_ids")))
        return row

    def _get(self, db: Connection, run_id: str) -> RunRow:
        return run_of(self.url, self._select(db, "find_run", run_id))

    def _stored(self, db: Connection, run_id: str) -> StoredRun:
        """A run as it is stored; `StoreDamaged` if it is not as it was written."""
        row = self._select(db, "find_run", run_id)
        run_of(self.url, row)
        return StoredRun(*row)

    def _number(self, db: Connection, run_id: str) -> int:
        return int(self._select(db, "find_number", run_id)[0])

    def _bounds(self, db: Connection, run_id: str, after: int) -> dict[str, object]:
        number = self._number(db, run_id)
        start = number << SEQ_BITS
        return {"run": number, "after": start + after, "end": start + (1 << SEQ_BITS)}

"""Checks the rows of a run in SQLite against their checksums before they are read."""

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import field
from typing import Final, cast

from abreast.core.errors import StoreDamaged
from abreast.core.events import CALL_SETTLED, ITEM_READ, ITEM_SETTLED, ITEMS_COMPLETE, MAP_STARTED
from abreast.core.frozen import record
from abreast.store.checked_runs import damaged
from abreast.store.checksums import ChainCheck, Fault, StoredEvent, StoredRun, run_fault
from abreast.store.rows import SEQ_BITS, Row
from abreast.store.sqlite.sql import sql

ROWS_PER_PAGE: Final = 1000
EVERYTHING: Final = -1  # a LIMIT of SQLite

_INDEX_OF_KIND: Final = {
    ITEM_SETTLED: "index_settled",
    ITEM_READ: "index_read",
    ITEMS_COMPLETE: "index_read",
    MAP_STARTED: "index_maps",
    CALL_SETTLED: "index_calls",
}


@record(slots=True)
class _VerifiedRun:
    """How far a run was checked, and what its events say that its indexes have to say too."""

    check: ChainCheck
    mark: Row = ()  # state, epoch, last seq and tail at that time
    entries: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(_INDEX_OF_KIND.values(), 0)
    )


class RunVerifier:
    """Checks the runs of one store as they are read: what was checked once is not read again.

    Of a run that goes on, only the new events are checked. Its indexes are checked once it is not
    running.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._runs: dict[int, _VerifiedRun] = {}
        self._lock = threading.Lock()

    def verify(self, db: sqlite3.Connection, run_id: str, place: Row, *, ends: bool) -> None:
        """Check a run in an open read transaction; `place` is its number and its mark.

        With `ends` nothing is written to it any more, so its indexes are checked too. Raises
        `StoreDamaged`, which names the rows.
        """
        number, *mark = place
        with self._lock:
            known = self._runs.get(number)
            if known is not None and known.mark == tuple(mark):
                return
            run = StoredRun(*db.execute(sql("find_run"), (run_id,)).fetchone())
            if (fault := run_fault(run)) is not None:
                raise damaged(self._path, run_id, [fault])
            if known is None or known.check.seq > run.last_seq:
                known = _VerifiedRun(ChainCheck(run_id, run.checked_from))
            self._runs.pop(number, None)  # until it is whole again
            self._follow(db, number, known)
            known.check.finish(run.last_seq, run.tail, run.settled)
            faults = known.check.faults
            if ends and not faults:
                faults = index_faults(db, number, known.entries)
            if faults:
                raise damaged(self._path, run_id, faults)
            if ends:
                known.mark = tuple(mark)
            self._runs[number] = known

    @staticmethod
    def _follow(db: sqlite3.Connection, number: int, known: _VerifiedRun) -> None:
        base = number << SEQ_BITS
        cursor = db.execute(
            sql("list_stored"),
            {
                "base": base,
                "after": base + known.check.seq,
                "end": base + (1 << SEQ_BITS),
                "limit": EVERYTHING,
            },
        )
        entries = known.entries
        while rows := cursor.fetchmany(ROWS_PER_PAGE):
            known.check.add_all(cast("list[StoredEvent]", rows))
            add_entries(entries, rows)


def add_entries(entries: dict[str, int], rows: Iterable[Row]) -> None:
    """Add what the indexes have to say of these events; the order does not matter."""
    for row in rows:
        index = _INDEX_OF_KIND.get(row[1])
        if index is not None:
            entries[index] += hash((row[0], "" if index == "index_read" else row[2]))


def index_faults(db: sqlite3.Connection, number: int, entries: dict[str, int]) -> list[Fault]:
    """What is wrong in the indexes of a run whose events are whole."""
    bounds = {"run": number, "base": number << SEQ_BITS}
    return [
        Fault(0, 0, f"the index events_{index.removeprefix('index_')} differs from its events")
        for index, expected in entries.items()
        if sum(hash(entry) for entry in db.execute(sql(index), bounds)) != expected
    ]


def check_run_list(db: sqlite3.Connection, path: str) -> None:
    """Raise `StoreDamaged` if the list of runs has lost one, or its indexes differ from it."""
    for fault in run_list_faults(db):
        raise StoreDamaged(f"{path} is damaged: {fault}; `abreast store check` says more")


def run_list_faults(db: sqlite3.Connection) -> list[str]:
    """What is wrong with the list of runs and its indexes."""
    runs = db.execute(sql("list_numbers")).fetchall()
    [(count,)] = db.execute(sql("count_runs")).fetchall() or [(0,)]
    faults = []
    if count != len(runs):
        faults.append(f"it holds {len(runs)} runs, and {count} were added and not removed")
    for statement, column in (("index_ids", 1), ("index_names", 2)):
        if {(row[0], row[column]) for row in runs} != set(db.execute(sql(statement))):
            faults.append(f"the index of the runs' {statement.removeprefix('index_')} differs")
    return faults

"""Reads and adds rows as they are stored, also those of a damaged file."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from abreast.store.checksums import StoredEvent, StoredRun, row_sum
from abreast.store.rows import MAX_INLINE, SEQ_BITS, Row
from abreast.store.sqlite.sql import migrations, sql
from abreast.store.sqlite.verify import run_list_faults

ROWS_PER_PAGE: Final = 1000
MAX_INTEGRITY_FAULTS: Final = 100
MIN_EVENT_BYTES: Final = 40  # of a row: its header, kind, path, two times and checksum
_DAMAGE_ERRORS: Final = (sqlite3.DatabaseError, OverflowError, UnicodeDecodeError)


def read_anything(db: sqlite3.Connection) -> None:
    """Let a connection read texts that are no UTF-8; they differ from what was written."""
    db.text_factory = lambda text: text.decode("utf-8", "surrogateescape")


def stored_runs(db: sqlite3.Connection) -> list[StoredRun]:
    """All runs, oldest first; of a damaged table, those that can be read."""
    rows: list[Row] = []
    everything = {"name": None, "state": None, "tag": None, "limit": -1}
    with suppress(*_DAMAGE_ERRORS):
        for row in db.execute(sql("list_runs"), everything):
            rows.append(row)  # noqa: PERF402 - those before an error are kept
    return [StoredRun(*row) for row in reversed(rows)]


def stored_events(db: sqlite3.Connection, number: int, last_seq: object) -> Iterator[StoredEvent]:
    """All events of a run in order; of a damaged table, those that can be read.

    A scan ends at a page that can't be read. Then each event is searched for by its number.
    """
    base = number << SEQ_BITS
    seq = 0
    try:
        for row in _scan(db, base):
            yield StoredEvent(*row)
            seq = row[0] if isinstance(row[0], int) else seq
    except _DAMAGE_ERRORS:
        for wanted in range(seq + 1, _last_possible(db, seq, last_seq) + 1):
            found = None
            with suppress(*_DAMAGE_ERRORS):
                found = db.execute(
                    sql("find_stored"), {"base": base, "id": base + wanted}
                ).fetchone()
            if found is not None:
                yield StoredEvent(*found)


def _last_possible(db: sqlite3.Connection, seq: int, last_seq: object) -> int:
    """The number at which to stop searching for events after `seq`.

    `last_seq` may be damaged as well: a search for more events than fit into the file would take
    forever.
    """
    [(_, _, path)] = db.execute("PRAGMA database_list").fetchall()
    files = [Path(f"{path}{end}") for end in ("", "-wal")]
    size = sum(file.stat().st_size for file in files if file.exists())
    most = seq + size // MIN_EVENT_BYTES
    return min(last_seq, most) if isinstance(last_seq, int) else most


def _scan(db: sqlite3.Connection, base: int) -> Iterator[Row]:
    bounds = {"base": base, "after": base, "end": base + (1 << SEQ_BITS), "limit": -1}
    yield from db.execute(sql("list_stored"), bounds)


def add_copy(db: sqlite3.Connection, run: StoredRun, events: Iterable[StoredEvent]) -> None:
    """Add a run as it is stored elsewhere."""
    [(number,)] = db.execute(sql("insert_copy"), run).fetchall()
    base, source = number << SEQ_BITS, iter(events)
    while page := list(islice(source, ROWS_PER_PAGE)):
        rows, blobs = [], []
        for seq, kind, path, lane, mono, wall, data, body, epoch, total in page:
            inline = body
            if body is not None and len(body) > MAX_INLINE:
                blobs.append((base + seq, body))
                inline = None
            row = (base + seq, number, kind, path, lane, mono, wall, data, inline, epoch, total)
            rows.append(row)
        db.executemany(sql("insert_event"), rows)
        db.executemany(sql("insert_blob"), blobs)


def integrity_faults(db: sqlite3.Connection) -> Iterator[str]:
    """What SQLite finds wrong with the file, and the rows that belong to no run."""
    try:
        for (found,) in db.execute(f"PRAGMA integrity_check({MAX_INTEGRITY_FAULTS})"):
            if found != "ok":
                yield f"SQLite says: {' '.join(str(found).split())}"
        if schema_of(db) != _schema():
            yield "its schema is not that of an abreast store"
        yield from run_list_faults(db)
        yield from _changed_rows(db, "request", "check_requests")
        yield from _changed_rows(db, "cached reply", "check_replies")
        yield from _changed_rows(db, "ledger of lane", "list_ledgers")
    except _DAMAGE_ERRORS as error:
        yield f"SQLite says: {error}"


def schema_of(db: sqlite3.Connection) -> set[Row]:
    """The tables, indexes and triggers of a database, as it has their definitions."""
    return set(db.execute("SELECT type, name, sql FROM sqlite_master"))


def _schema() -> set[Row]:
    with closing(sqlite3.connect(":memory:")) as db:
        for script in migrations():
            db.executescript(script)
        return schema_of(db)


def _changed_rows(db: sqlite3.Connection, what: str, statement: str) -> Iterator[str]:
    for name, total, *columns in db.execute(sql(statement)):
        if total not in (None, row_sum(columns)):
            yield f"{what} {name} was changed"

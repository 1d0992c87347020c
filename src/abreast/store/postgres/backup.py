"""Copies a PostgreSQL store, as of one moment, into a store in one SQLite file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from abreast.core.errors import StoreError
from abreast.store.postgres.database import Connection, PostgresDatabase
from abreast.store.postgres.server_errors import as_store_error
from abreast.store.rows import Row
from abreast.store.sqlite.store import SqliteStore, write_atomically

_PAGE: Final = 1000  # rows of the cursor that are read at once

# The tables of an SQLite store, with the columns that both stores have; text that is kept as bytes.
_COLUMNS: Final = {
    "names": "name, last",
    "runs": "number, id, name, kind, state, seed, epoch, created, ended, beat, last_seq, driver, "
    "reason, tags, spent, manifest, checked_from, tail, settled, fixed, sum",
    "events": "id, run, kind, path, lane, mono, wall, data, body, epoch, sum",
    "blobs": "id, body",
    "requests": "id, run, kind, data, created, answered, sum",
    "replies": "key, model, body, kept, sum",
    "ledgers": "name, body, sum",
}


def write_backup(database: PostgresDatabase, path: str) -> None:
    """Write a consistent copy of the whole store to `path`, atomically."""
    target = Path(path).resolve()
    if Path(f"{target}-wal").exists():
        raise StoreError(f"{target} is a store in use: a copy over it would damage it")
    with write_atomically(target) as part:
        SqliteStore(part).close()  # makes its tables
        with (
            closing(sqlite3.connect(part)) as copy,
            as_store_error(database.url),
            database.connect() as db,
        ):
            # One file, which can be renamed.
            copy.execute("PRAGMA journal_mode = DELETE")
            with copy:
                _copy_tables(database, db, copy)


def _copy_tables(database: PostgresDatabase, db: Connection, copy: sqlite3.Connection) -> None:
    db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    for table, columns in _COLUMNS.items():
        marks = ", ".join("?" * len(columns.split(", ")))
        rows = _rows(db, database.table(table), columns)
        copy.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)  # noqa: S608 - our own names
    db.execute("COMMIT")


def _rows(db: Connection, table: str, columns: str) -> Iterator[Row]:
    with db.cursor("backup", binary=True) as cursor:
        cursor.itersize = _PAGE
        cursor.execute(f"SELECT {columns} FROM {table}".encode())  # noqa: S608 - our own names
        for row in cursor:
            yield tuple(cell.decode() if isinstance(cell, bytes) else cell for cell in row)

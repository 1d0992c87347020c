"""The stores under one contract: how each is opened, opened again, and opened from its backup."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, Event
from abreast.store.memory import MemoryStore
from abreast.store.port import Driver
from abreast.store.postgres.store import PostgresStore
from abreast.store.sqlite.store import SqliteStore


class OpenedPostgres(PostgresStore):
    """It keeps its address, with the password, so that it can be opened again."""

    def __init__(self, address):
        self.address = address
        super().__init__(address)


@dataclass(frozen=True)
class Adapter:
    """`again` gives a second handle on what the first one holds, as another process would have."""

    name: str
    open: Callable[[Path | str], object]
    again: Callable[[object], object]
    open_backup: Callable[[Path], object]
    url: str | None = None  # the fixture with the address to open, in place of a folder


ADAPTERS = [
    Adapter(
        "memory",
        open=lambda _folder: MemoryStore(),
        again=lambda store: store,
        open_backup=lambda path: MemoryStore.load(str(path)),
    ),
    Adapter(
        "sqlite",
        open=lambda folder: SqliteStore(folder / "runs.db"),
        again=lambda store: SqliteStore(store.path),
        open_backup=SqliteStore,
    ),
    *(
        Adapter(
            name,
            open=OpenedPostgres,
            again=lambda store: OpenedPostgres(store.address),
            open_backup=SqliteStore,
            url=f"{name}_url",
        )
        for name in ("postgres", "bouncer")
    ),
]

ANN = Driver(11, "here", 100.0, "abreast map")
BOB = Driver(22, "there", 200.0)


def begin(store, name="job", driver=ANN, **more):
    return store.begin(
        name, **{"kind": "script", "seed": 7, "manifest": {}, "tags": (), "driver": driver, **more}
    )


def event(seq, kind=ITEM_STARTED, path="job/map/0001", **more):
    return Event(seq, kind, path, 1.5 + seq, 1000.0 + seq, **more)


def settled(seq, path, body='"done"', **more):
    return event(seq, ITEM_SETTLED, path, body=body, **more)


def fill(store, batches=40):
    begin(store)
    for batch in range(batches):
        first = batch * 50
        store.commit(
            "job-1", 1, [settled(first + n, f"m/{first + n}", "x" * 100) for n in range(1, 51)], {}
        )


def forget_checksums(path):
    """Make all rows those of an earlier version, which wrote no checksums."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE events SET epoch = NULL, sum = NULL")
        db.execute(
            "UPDATE runs SET checked_from = NULL, tail = NULL, settled = NULL, fixed = NULL,"
            " sum = NULL"
        )
        db.execute("UPDATE requests SET sum = NULL")
        db.execute("UPDATE replies SET sum = NULL")


def sqlite_error(code):
    error = sqlite3.OperationalError("as sqlite says it")
    error.sqlite_errorcode = code
    return error

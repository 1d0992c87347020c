"""Drivers, events and damaged rows; without PostgreSQL, which child processes would import."""

import sqlite3
from contextlib import closing

from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, Event
from abreast.store.port import Driver

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

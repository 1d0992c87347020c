"""A damaged store is said to be damaged: it never gives fewer or other rows."""

import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import StoreError
from abreast.core.events import (
    CALL_SETTLED,
    ITEM_READ,
    ITEM_SETTLED,
    ITEMS_COMPLETE,
    MAP_STARTED,
)
from abreast.store.port import each_event, each_outcome
from abreast.store.sqlite.store import SqliteStore
from tests.properties import tried
from tests.store.contract import begin, event, settled

ITEMS = 120


def finish(store, run_id="job-1"):
    store.end(run_id, 1, "done", "", 900.0)


def write_run(store, name="job", items=ITEMS):
    """A run with events of every kind that has an index, in several commits."""
    run = begin(store, name, manifest={"file": "x" * 300}, tags=["t"])
    store.commit(run.id, 1, [event(1, "run-started", name), event(2, MAP_STARTED, f"{name}/m")], {})
    seq = 2
    for at in range(0, items, 10):
        batch = [event(seq + 1, ITEM_READ, f"{name}/m", data={"index": at}, body='"line"\n' * 9)]
        for n in range(at, at + 10):
            path = f"{name}/m/{n:04}"
            batch.append(event(seq + len(batch) + 1, CALL_SETTLED, f"{path}/c", body='"reply"'))
            body = "x" * (70_000 if n == 15 else 30)
            facts = {"index": n, "state": "done"}
            batch.append(settled(seq + len(batch) + 1, path, f'"{body}"', data=facts))
        seq += len(batch)
        store.commit(run.id, 1, batch, {"usd": 0.5})
    store.commit(run.id, 1, [event(seq + 1, ITEMS_COMPLETE, f"{name}/m")], {"usd": 1.0})
    return run.id


@cache
def finished_file():
    """The bytes of a store with three ended runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        with closing(SqliteStore(path)) as store:
            for name in ("other", "job", "last"):
                finish(store, write_run(store, name, ITEMS if name == "job" else 20))
        return path.read_bytes()


READS = [
    lambda store: store.runs(),
    lambda store: store.get("job-1"),
    lambda store: store.newest("job"),
    lambda store: store.count_states("job-1", 10_000),
    lambda store: list(each_outcome(store, "job-1", page=50)),
    lambda store: list(each_outcome(store, "job-1", prefix="job/m", page=50)),
    lambda store: store.outcomes("job-1", prefix="job/m/0007"),
    lambda store: store.recorded("job-1", [f"job/m/{n:04}" for n in range(0, ITEMS, 7)]),
    lambda store: list(each_event(store, "job-1", page=50)),
    lambda store: list(each_event(store, "job-1", {ITEM_SETTLED}, page=50)),
    lambda store: list(each_event(store, "job-1", {ITEM_READ, ITEMS_COMPLETE})),
    lambda store: list(each_event(store, "job-1", {MAP_STARTED})),
    lambda store: store.events("job-1", kinds={CALL_SETTLED}, prefix="job/m/0003"),
]


@cache
def whole_answers():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        path.write_bytes(finished_file())
        with closing(SqliteStore(path)) as store:
            return [read(store) for read in READS]


def checked_read(path, read):
    """What it returns; None if it says that the store is damaged."""
    try:
        with closing(SqliteStore(path)) as store:
            return read(store)
    except StoreError:
        return None


@tried(60)
@given(st.data())
def test_after_a_flipped_bit_every_read_gives_the_same_or_says_that_there_is_damage(data):
    content = bytearray(finished_file())
    for _ in range(data.draw(st.integers(1, 3), "flips")):
        place = data.draw(st.integers(0, len(content) - 1), "byte")
        content[place] ^= 1 << data.draw(st.integers(0, 7), "bit")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        for read, whole in zip(READS, whole_answers(), strict=True):
            path.write_bytes(content)
            assert checked_read(path, read) in (None, whole)

"""When the store fails in the middle of a run: one clear error, and nothing recorded is lost."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import abreast
from abreast.core.errors import DriverReplaced, StoreCorrupt, StoreError, StoreNewer
from abreast.core.events import RUN_ENDED
from abreast.store.port import Driver, each_outcome
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import Gate, MemoryStore

FULL = """
import asyncio, json, resource, sys, abreast
from abreast.core.errors import StoreError

ran = []

async def work(item):
    ran.append(item)
    return {"item": item, "text": "x" * 20_000}

async def main(store, limit):
    seen = []
    try:
        async with abreast.open_run("full", store=store) as run:
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            async for outcome in run.map(work, range(60), width=4):
                seen.append(outcome.index)
    except StoreError as error:
        kind = type(error).__name__
        print(json.dumps({"error": kind, "says": str(error), "seen": seen, "ran": ran}))
    else:
        print(json.dumps({"error": None, "seen": seen, "ran": ran}))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def run_until_full(store: Path, limit: int) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(store), str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said: dict[str, object] = json.loads(done.stdout)
    return said


def test_a_disk_that_fills_up_ends_the_run_with_one_clear_error_and_nothing_recorded_is_lost(
    tmp_path,
):
    store = tmp_path / "runs.db"
    first = run_until_full(store, 400_000)
    assert first["error"] == "StoreFull"
    assert str(store) in str(first["says"])
    with closing(SqliteStore(store)) as opened:
        recorded = {int(one.data["index"]) for one in each_outcome(opened, "full-1")}
    assert 0 < len(recorded) < 60
    assert set(first["seen"]) <= recorded
    second = run_until_full(store, 0)
    assert second["seen"] == list(range(60))
    assert not recorded & set(second["ran"])


async def test_a_driver_that_was_replaced_writes_nothing_more():
    store, gate = MemoryStore(), Gate()

    async def work(item):
        await gate.pass_(item)
        return item

    with pytest.raises(DriverReplaced):
        async with abreast.open_run("job", store=store) as run:
            async with run.map(work, range(4), width=2) as outcomes:
                await gate.wait_for(0, 1)
                store.let_go(
                    "job-1"
                )  # as if this host had been gone for so long that another took over
                store.take_over("job-1", Driver(2, "there", 0.0))
                gate.open_all()
                async for _ in outcomes:
                    pass
    assert store.outcomes("job-1") == []
    assert gate.arrived == [0, 1]


class Failing(MemoryStore):
    """A store whose disk breaks at a given commit."""

    def __init__(self, at):
        super().__init__()
        self.left = at

    def commit(self, *args):
        self.left -= 1
        if self.left <= 0:
            raise StoreError("the disk broke")
        super().commit(*args)


@pytest.mark.parametrize("at", range(1, 8))
async def test_whenever_a_commit_fails_the_map_ends_with_its_error_and_no_task_is_left(at):
    async def work(item):
        return item

    store, seen = Failing(at), []
    with pytest.raises(StoreError, match="the disk broke"):
        async with abreast.open_run("job", store=store) as run:
            for name in "abc":
                async for outcome in run.map(work, range(10), width=3, name=name):
                    seen.append((name, outcome.index))
    recorded = {(r.path.split("/")[1], r.data["index"]) for r in store.outcomes("job-1")}
    assert set(seen) <= recorded


class FailingAtTheEnd(MemoryStore):
    """A store whose disk breaks when all is done but to say so."""

    def commit(self, run_id, epoch, events, spent):
        if any(event.kind == RUN_ENDED for event in events):
            raise StoreError("the disk broke")
        super().commit(run_id, epoch, events, spent)


async def test_a_commit_that_fails_when_no_map_is_open_any_more_is_told_at_the_end():
    async def work(item):
        return item

    store, seen = FailingAtTheEnd(), []
    with pytest.raises(StoreError, match="the disk broke"):
        async with abreast.open_run("job", store=store) as run:
            seen = await run.map(work, range(10), width=3).values()
    assert seen == list(range(10))
    assert len(store.outcomes("job-1")) == 10
    assert store.get("job-1").state == "running"  # its end could not be written


@pytest.mark.parametrize("error", [ValueError("mine"), asyncio.CancelledError()])
async def test_but_an_error_of_ones_own_comes_first(error):
    with pytest.raises(type(error)):
        async with abreast.open_run("job", store=FailingAtTheEnd()):
            raise error


@pytest.mark.parametrize("effect", ["pure", "once"])
async def test_a_commit_that_fails_while_starts_are_written_ends_it_too(effect):
    async def work(item):
        return item

    with pytest.raises(StoreError, match="the disk broke"):
        async with abreast.open_run("job", store=Failing(2)) as run:
            await run.map(work, range(10), width=3, effect=effect).values()


def newer(path):
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda path: path.write_bytes(b"this is no database" * 100), StoreCorrupt),
        (lambda path: path.write_bytes(b""), None),
        (newer, StoreNewer),
        (lambda path: path.mkdir(), StoreError),
    ],
)
async def test_a_store_that_cannot_be_used_is_one_clear_error_before_anything_runs(
    tmp_path, damage, error
):
    path, ran = tmp_path / "runs.db", []
    damage(path)

    async def work(item):
        ran.append(item)

    async def main():
        async with abreast.open_run("job", store=path) as run:
            await run.map(work, [1], width=1).values()

    if error is None:
        await main()
        assert ran == [1]
        return
    with pytest.raises(error) as caught:
        await main()
    assert ran == []
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)

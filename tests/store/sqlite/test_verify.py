"""A damaged store is said to be damaged: it never gives fewer or other rows."""

import signal
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import StoreDamaged, StoreError
from abreast.core.events import (
    CALL_SETTLED,
    ITEM_READ,
    ITEM_SETTLED,
    ITEMS_COMPLETE,
    MAP_STARTED,
)
from abreast.store.check import check_store
from abreast.store.memory import MemoryStore
from abreast.store.port import each_event, each_outcome
from abreast.store.recovery import recover_store
from abreast.store.sqlite.store import SqliteStore
from tests.properties import tried
from tests.store.children import child
from tests.store.contract import BOB, begin, event, forget_checksums, settled

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


@pytest.fixture
def finished(tmp_path):
    path = tmp_path / "runs.db"
    path.write_bytes(finished_file())
    return path


def alter(path, *statements):
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


BASE = 2 << 40  # ids of the events of job-1


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM events WHERE id = {0} + 40", "row 40: missing"),
        ("DELETE FROM events WHERE id > {0} + 200", "rows 201-"),
        ("DELETE FROM events WHERE id > {0} AND id < {0} + 1000", "rows 1-"),
        ("UPDATE events SET kind = 'item-x' WHERE id = {0} + 41", "row 41: changed"),
        ("UPDATE events SET body = '\"y\"' WHERE id = {0} + 41", "row 41: changed"),
        ("UPDATE events SET sum = NULL, epoch = NULL WHERE id = {0} + 41", "row 41: its checksum"),
        ("UPDATE events SET id = id + 900 WHERE id = {0} + 41", "row 41: missing"),
        ("DELETE FROM blobs WHERE id > {0}", "changed"),
        ("UPDATE runs SET state = 'failed' WHERE id = 'job-1'", "own row was changed"),
        ("UPDATE runs SET sum = NULL WHERE id = 'job-1'", "own row is missing"),
        ("UPDATE runs SET number = 9 WHERE id = 'job-1'", "rows 1-"),
    ],
)
def test_altered_rows_are_named(finished, statement, told):
    alter(finished, statement.format(BASE))
    with closing(SqliteStore(finished)) as store, pytest.raises(StoreDamaged, match=told):
        list(each_outcome(store, "job-1"))


def test_swapped_rows_are_named(finished):
    alter(
        finished,
        f"UPDATE events SET id = 99 WHERE id = {BASE + 41}",
        f"UPDATE events SET id = {BASE + 41} WHERE id = {BASE + 43}",
        f"UPDATE events SET id = {BASE + 43} WHERE id = 99",
    )
    with (
        closing(SqliteStore(finished)) as store,
        pytest.raises(StoreDamaged, match="row 41: changed; row 43: changed"),
    ):
        store.recorded("job-1", ["job/m/0001"])


def test_a_row_that_was_copied_to_another_place_is_named(finished):
    columns = "run, kind, path, lane, mono, wall, data, body, epoch, sum"
    alter(
        finished,
        f"INSERT INTO events (id, {columns}) SELECT {BASE} + 900, {columns} FROM events"
        f" WHERE id = {BASE + 41}",
    )
    with closing(SqliteStore(finished)) as store, pytest.raises(StoreDamaged, match="row 900"):
        store.events("job-1")


def test_a_lost_run_is_noticed(finished):
    alter(finished, "DROP TRIGGER runs_deleted", "DELETE FROM runs WHERE id = 'job-1'")
    with closing(SqliteStore(finished)) as store:
        for read in (store.runs, lambda: store.get("job-1"), lambda: store.newest("job")):
            with pytest.raises(StoreDamaged, match="it holds 2 runs, and 3 were added"):
                read()


def test_a_run_of_before_is_read_as_it_is_and_checked_from_its_next_driver_on(finished):
    forget_checksums(finished)
    with closing(SqliteStore(finished)) as store:
        before = store.events("job-1", limit=10_000)
        row = store.take_over("job-1", BOB)
        store.commit("job-1", row.epoch, [settled(row.last_seq + 1, "job/m/x")], {})
        store.end("job-1", row.epoch, "done", "", 1000.0)
    with closing(SqliteStore(finished)) as store:
        assert store.events("job-1", limit=10_000)[:-1] == before
    alter(finished, f"UPDATE events SET body = '1' WHERE id = {BASE + row.last_seq + 1}")
    with (
        closing(SqliteStore(finished)) as store,
        pytest.raises(StoreDamaged, match=f"row {row.last_seq + 1}: changed"),
    ):
        store.events("job-1")


def test_a_driver_of_before_that_goes_on_writing_leaves_its_run_unchecked(finished):
    forget_checksums(finished)
    alter(
        finished,
        f"INSERT INTO events (id, run, kind, path, mono, wall) SELECT {BASE} + last_seq + 1, 2,"
        " 'x', 'p', 1.0, 1.0 FROM runs WHERE number = 2",
        "UPDATE runs SET last_seq = last_seq + 1 WHERE number = 2",
    )
    with closing(SqliteStore(finished)) as store:
        assert store.events("job-1", limit=10_000)[-1].kind == "x"


def test_a_damaged_run_is_not_resumed_and_others_are(finished):
    alter(finished, f"DELETE FROM events WHERE id = {BASE + 41}")
    with closing(SqliteStore(finished)) as store:
        with pytest.raises(StoreDamaged, match="row 41: missing"):
            store.take_over("job-1", BOB)
        assert not store.driven("job-1")
        assert store.take_over("other-1", BOB).epoch == 2


def test_events_of_a_run_that_goes_on_are_checked_as_they_come(tmp_path):
    path = tmp_path / "runs.db"
    with closing(SqliteStore(path)) as writer, closing(SqliteStore(path)) as reader:
        begin(writer)
        for seq in range(1, 4):
            writer.commit("job-1", 1, [settled(seq, f"m/{seq}")], {})
            assert len(reader.events("job-1")) == seq
        alter(path, "UPDATE events SET body = '1' WHERE id = (1 << 40) + 2")
        writer.commit("job-1", 1, [settled(4, "m/4")], {})
        assert len(reader.events("job-1")) == 4  # row 2 was checked before
        with closing(SqliteStore(path)) as later, pytest.raises(StoreDamaged, match="row 2"):
            later.events("job-1")


def test_a_damaged_request_is_not_obeyed_and_a_damaged_reply_is_asked_for_again(finished):
    with closing(SqliteStore(finished)) as store:
        store.ask("job-1", "cancel", {"reason": "x"}, 1.0)
        store.keep_reply("key", "model", "reply", 2)
        assert len(store.asked("job-1")) == 1
        assert store.find_reply("key") == "reply"
    alter(finished, "UPDATE requests SET kind = 'approve'", "UPDATE replies SET body = 'other'")
    with closing(SqliteStore(finished)) as store:
        assert store.asked("job-1") == []
        assert store.find_reply("key") is None
        assert len(store.integrity_faults()) == 2


def test_a_row_that_another_process_changed_between_commits_stops_its_driver(tmp_path):
    path = tmp_path / "runs.db"
    with closing(SqliteStore(path)) as store:
        begin(store)
        store.commit("job-1", 1, [settled(1, "m/1")], {})
        alter(path, "UPDATE runs SET sum = sum + 1")
        with pytest.raises(StoreDamaged, match="own row was changed"):
            store.commit("job-1", 1, [settled(2, "m/2")], {})


KILLED_INSIDE_A_COMMIT = """
import signal
from abreast.store.sqlite.run_rows import Commit

store = SqliteStore(sys.argv[1])
begin(store)
store.commit("job-1", 1, [settled(n, f"m/{n}") for n in range(1, 6)], {})
with store._db.writing(sync=False) as db:
    commit = Commit(1, [settled(n, f"m/{n}") for n in range(6, 9)], {})
    assert commit.write(db, store._written["job-1"])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_inside_a_commit_the_chain_goes_on_where_it_was(path):
    with child(KILLED_INSIDE_A_COMMIT, path) as driver:
        assert driver.wait(60) == -signal.SIGKILL
    with closing(SqliteStore(path)) as store:
        row = store.take_over("job-1", BOB)
        assert row.last_seq == 5
        store.commit("job-1", row.epoch, [settled(n, f"m/{n}") for n in range(6, 12)], {})
        store.end("job-1", row.epoch, "done", "", 2.0)
    with closing(SqliteStore(path)) as store:
        found = check_store(store)
        assert found.is_whole
        assert [(run.verdict, run.events) for run in found.runs] == [("ok", 11)]


@tried(30)
@given(st.data())
def test_of_a_damaged_file_a_recovery_keeps_only_rows_as_they_were_written(data):
    content = bytearray(finished_file())
    for _ in range(data.draw(st.integers(1, 4), "flips")):
        place = data.draw(st.integers(100, len(content) - 1), "byte")
        content[place] ^= 1 << data.draw(st.integers(0, 7), "bit")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        path.write_bytes(content)
        whole = {(found.path, found.body) for found in whole_answers()[4]}
        try:
            with closing(SqliteStore(path)) as damaged, closing(MemoryStore()) as target:
                kept = {one.run_id: one for one in recover_store(damaged, target, 1.0)}
                if "job-1" not in kept:
                    return
                found = {(one.path, one.body) for one in each_outcome(target, "job-1")}
                assert found <= whole
                assert found == whole or target.get("job-1").state == "interrupted"
                assert check_store(target).is_whole
        except StoreError:  # it can't even be opened, or the list of runs is damaged
            pass

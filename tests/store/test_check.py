"""Checking, copying and recovering runs, over every store that can do it."""

import sqlite3
from contextlib import closing

import pytest

import abreast
from abreast.core.errors import NoSuchRun, RunBusy, RunExists, StoreDamaged
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE, MAP_ENDED
from abreast.core.run_end import is_over
from abreast.store.check import check_store, copy_run
from abreast.store.memory import MemoryStore
from abreast.store.port import each_event, each_outcome
from abreast.store.recovery import RUN_RECOVERED, recover_store
from abreast.store.sqlite.store import SqliteStore
from tests.store.contract import ADAPTERS, BOB, begin, event, forget_checksums, settled

LONG = "x" * 70_000
PAGES = 4


def write(store, name="job"):
    """A run of 40 items, read in four pages."""
    run = begin(store, name)
    events = [event(1, "run-started", name)]

    def add(kind, path, **more):
        events.append(event(len(events) + 1, kind, path, **more))

    for page in range(PAGES):
        first = page * 10
        path = f"{name}/input/{first:04}"
        add(ITEM_READ, path, data={"index": first, "count": 10}, body="\n".join("1234567890"))
    add(ITEMS_COMPLETE, f"{name}/input", data={"items": 40})
    for n in range(40):
        body = LONG if n == 7 else f'"é{n}"'
        facts = {"index": n, "state": "done"}
        events.append(settled(len(events) + 1, f"{name}/m/{n:04}", body, data=facts))
    add(MAP_ENDED, f"{name}/m", data={"peak": 1, "released": 40})
    add("run-ended", name, data={"state": "done"})
    for at in range(0, len(events), 7):
        store.commit(run.id, 1, events[at : at + 7], {"usd": 1.5})
    store.end(run.id, 1, "done", "", 900.0)
    return run.id


def alter(path, statement):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.name)
def store(request, tmp_path):
    adapter = request.param
    store = adapter.open(request.getfixturevalue(adapter.url) if adapter.url else tmp_path)
    yield store
    store.close()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "source.db"
    with closing(SqliteStore(path)) as source:
        write(source)
        write(source, "other")
    return path


def test_a_whole_store_is_ok(store):
    write(store)
    begin(store, "going")
    found = check_store(store)
    assert found.is_whole
    assert [(run.run_id, run.verdict, run.events) for run in found.runs] == [
        ("job-1", "ok", 48),
        ("going-1", "ok", 0),
    ]
    assert [run.run_id for run in check_store(store, "job-1").runs] == ["job-1"]
    with pytest.raises(NoSuchRun):
        check_store(store, "nope")


def test_rows_of_before_are_unchecked(path):
    forget_checksums(path)
    with closing(SqliteStore(path)) as source:
        found = check_store(source, "job-1")
    assert found.is_whole
    assert [(run.verdict, run.checked) for run in found.runs] == [("unchecked", 0)]


def test_a_copy_is_byte_for_byte_and_is_checked_there(store, tmp_path):
    run_id = write(store)
    with closing(SqliteStore(tmp_path / "target.db")) as target:
        assert copy_run(store, run_id, target).verdict == "ok"
        assert list(target.stored_events(run_id)) == list(store.stored_events(run_id))
        assert target.stored_runs() == store.stored_runs()
        assert target.get(run_id) == store.get(run_id)
        assert list(each_outcome(target, run_id)) == list(each_outcome(store, run_id))
        assert check_store(target).is_whole
        with pytest.raises(RunExists):
            copy_run(store, run_id, target)
        assert target.take_over(run_id, BOB).epoch == 2


def test_a_run_that_is_driven_or_unknown_is_not_copied(store):
    with closing(MemoryStore()) as target:
        begin(store)
        with pytest.raises(RunBusy):
            copy_run(store, "job-1", target)
        with pytest.raises(NoSuchRun):
            copy_run(store, "nope", target)
        assert target.runs() == []


def test_a_damaged_run_is_not_copied(path):
    alter(path, "UPDATE events SET body = '1' WHERE id = (1 << 40) + 20")
    with closing(SqliteStore(path)) as source, closing(MemoryStore()) as target:
        with pytest.raises(StoreDamaged, match="row 20: changed"):
            copy_run(source, "job-1", target)
        assert target.runs() == []
        assert copy_run(source, "other-1", target).verdict == "ok"


def test_a_copy_that_differs_is_removed(store):
    class Forgetful(MemoryStore):
        def add_copy(self, run, events):
            super().add_copy(run, list(events)[:-1])

    write(store)
    with closing(Forgetful()) as target:
        with pytest.raises(StoreDamaged, match="not what was copied"):
            copy_run(store, "job-1", target)
        assert target.runs() == []


def test_a_damaged_ledger_is_named_by_a_check_and_whole_ones_are_recovered(path):
    with closing(SqliteStore(path)) as source:
        source.change_ledger("spent", lambda _, now: '{"spent":{"usd":9}}')
        source.change_ledger("other", lambda _, now: '{"spent":{"usd":1}}')
    alter(path, "UPDATE ledgers SET body = replace(body, '1', '0') WHERE name = 'other'")
    with closing(SqliteStore(path)) as source:
        assert check_store(source).faults == ("ledger of lane other was changed",)
    with closing(MemoryStore()) as target:
        recovered(path, target)
        assert target.ledgers() == {"spent": '{"spent":{"usd":9}}'}


def recovered(path, target):
    with closing(SqliteStore(path)) as damaged:
        return {one.run_id: one for one in recover_store(damaged, target, 1000.0)}


def test_of_a_damaged_run_all_that_is_whole_is_kept_and_it_is_not_over(path):
    alter(path, "DELETE FROM events WHERE id = (1 << 40) + 20")
    alter(path, "UPDATE events SET kind = 'x' WHERE id = (1 << 40) + 22")
    with closing(MemoryStore()) as target:
        kept = recovered(path, target)
        assert kept["job-1"].check.lost == ("job/m/0013", "job/m/0015")
        assert kept["other-1"].check.faults == ()
        row = target.get("job-1")
        assert row.state == "interrupted"
        assert not is_over(row.state, row.reason)
        assert "row 20: missing; row 22: changed" in row.reason
        keys = [found.path[-4:] for found in each_outcome(target, "job-1")]
        assert keys == [f"{n:04}" for n in range(40) if n not in (13, 15)]
        assert check_store(target).is_whole
        kinds = [found.kind for found in each_event(target, "job-1")]
        assert kinds[-1] == RUN_RECOVERED
        assert "run-ended" not in kinds
        assert target.take_over("job-1", BOB).epoch == 2
        assert target.get("other-1").state == "done"


def test_lost_input_is_not_taken_for_complete(path):
    alter(path, "DELETE FROM events WHERE id = (1 << 40) + 3")
    with closing(MemoryStore()) as target:
        recovered(path, target)
        read = target.events("job-1", kinds={ITEM_READ, ITEMS_COMPLETE})
        assert [found.data for found in read] == [{"index": 0, "count": 10}]


def test_input_that_lost_its_end_is_not_taken_for_complete(path):
    alter(path, "DELETE FROM events WHERE id = (1 << 40) + 5")
    with closing(MemoryStore()) as target:
        recovered(path, target)
        read = target.events("job-1", kinds={ITEM_READ, ITEMS_COMPLETE})
        assert [found.data["index"] for found in read] == [0, 10, 20]


def test_whole_input_stays_complete(path):
    alter(path, "DELETE FROM events WHERE id = (1 << 40) + 30")
    with closing(MemoryStore()) as target:
        recovered(path, target)
        assert len(target.events("job-1", kinds={ITEM_READ, ITEMS_COMPLETE})) == PAGES + 1


async def test_an_item_that_lost_a_part_is_made_again_of_the_parts_that_are_left(tmp_path):
    path, saved, asked = tmp_path / "runs.db", tmp_path / "saved.db", []

    async def ask(x):
        asked.append(x)
        return f"reply {x}"

    async def cell(x):
        return len(await abreast.current().run.step("reply", ask, x))

    async def study(store, **more):
        async with abreast.open_run("study", store=store, **more) as run:
            async with run.map(cell, range(8), width=1, name="cells") as cells:
                return [one.value async for one in cells]

    first = await study(path)
    alter(
        path, "DELETE FROM events WHERE path = 'study/cells/0003/reply' AND kind = 'item-settled'"
    )
    with closing(SqliteStore(path)) as damaged, closing(SqliteStore(saved)) as target:
        recover_store(damaged, target, 1000.0, {"script": "reply"})
        cells = {one.path for one in each_outcome(target, "study-1")}
        assert "study/cells/0003" not in cells
        assert "study/cells/0002" in cells
    assert await study(saved, resume="must") == first
    assert asked == [*range(8), 3]
    with closing(SqliteStore(saved)) as target:
        found = {one.path for one in each_outcome(target, "study-1")}
    assert found == {f"study/cells/000{n}{part}" for n in range(8) for part in ("", "/reply")}


def test_a_damaged_row_of_a_run_is_mended_as_far_as_it_can_be(path):
    alter(path, "UPDATE runs SET state = 'dona', manifest = '{', tags = NULL WHERE number = 9")
    alter(path, "UPDATE runs SET state = 'dona', manifest = '{' WHERE number = 1")
    with closing(MemoryStore()) as target:
        kept = recovered(path, target)
        assert "own row was changed" in str(kept["job-1"].check.faults[0])
        row = target.get("job-1")
        assert (row.state, row.manifest, row.last_seq) == ("interrupted", {}, 48)
        assert check_store(target).is_whole


def test_rows_of_before_stay_unchecked_in_a_recovered_run(path):
    forget_checksums(path)
    alter(path, "DELETE FROM events WHERE id = (1 << 40) + 20")
    with closing(MemoryStore()) as target:
        recovered(path, target)
        found = {run.run_id: run for run in check_store(target).runs}
        assert (found["job-1"].verdict, found["job-1"].checked) == ("unchecked", 1)
        assert found["other-1"].checked == 0


def test_items_with_keys_of_their_own_are_named_by_their_place(store, tmp_path):
    path = tmp_path / "keys.db"
    with closing(SqliteStore(path)) as source:
        begin(source)
        events = [
            settled(n, f"job/m/key-{n}", data={"index": n - 1, "state": "done"})
            for n in range(1, 5)
        ]
        source.commit("job-1", 1, [*events, event(5, MAP_ENDED, "job/m", data={"released": 4})], {})
        source.end("job-1", 1, "done", "", 2.0)
    alter(path, "DELETE FROM events WHERE id = (1 << 40) + 2")
    alter(path, "UPDATE events SET body = '1' WHERE id = (1 << 40) + 3")
    with closing(SqliteStore(path)) as source:
        [run] = check_store(source).runs
    assert run.lost == ("job/m/key-3", "item 1 of job/m", "item 2 of job/m")


def ruin_page(path):
    """Write over a page of events."""
    with closing(sqlite3.connect(path)) as db:
        [(page,)] = db.execute(
            "SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf'"
            " ORDER BY pageno LIMIT 1 OFFSET 1"
        ).fetchall()
        [(size,)] = db.execute("PRAGMA page_size")
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(content)


def test_a_page_that_can_not_be_read_costs_only_its_rows(path, tmp_path):
    """SQLite ends a scan there; the rows after it are searched for one by one."""
    ruin_page(path)
    with closing(SqliteStore(tmp_path / "new.db")) as target:
        kept = recovered(path, target)
        for run in kept.values():
            missing = sum(fault.last - fault.first + 1 for fault in run.check.faults)
            outcomes = [found.path for found in each_outcome(target, run.run_id)]
            assert run.check.events + missing == 48
            assert not set(outcomes) & set(run.check.lost)
        assert 0 < sum(len(run.check.lost) for run in kept.values()) < 60
        assert check_store(target).is_whole


def test_the_search_for_rows_ends_if_the_number_of_events_is_damaged_too(path):
    alter(path, "UPDATE runs SET last_seq = 1 << 62")
    ruin_page(path)
    with closing(MemoryStore()) as target:
        kept = recovered(path, target)
        assert sum(run.kept for run in kept.values()) > 30
        assert check_store(target).is_whole

"""The counts in a run's row are those of its journal, whoever drove it and however it ended."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from abreast import open_run
from abreast.core.events import CALL_SETTLED, ITEM_SETTLED, ITEMS_COMPLETE, Event
from abreast.store.memory import MemoryStore
from abreast.store.port import Driver, each_outcome
from abreast.store.sqlite.store import SqliteStore
from abreast.store.totals import RunTotals, counts_of, totals_of, without_totals
from abreast.views.progress import Tallies

DRIVER = Driver(1, "here", 0.0)


def begun(store, name="job"):
    return store.begin(name, kind="map", seed=1, manifest={}, tags=(), driver=DRIVER)


def settled(seq, path, state):
    return Event(seq, ITEM_SETTLED, path, 0.0, 0.0, None, {"state": state}, None)


async def drive(store, fails, *, resume="auto", keys=range(6)):
    async def work(item):
        if item in fails:
            raise ValueError(f"{item} is refused")
        return item

    async with open_run("job", store=store, seed=1, resume=resume) as run:
        async for _ in run.map(work, list(keys), width=2):
            pass


def by_journal(store, run_id):
    found = [str(one.data["state"]) for one in each_outcome(store, run_id)]
    return {state: found.count(state) for state in ("done", "failed", "cancelled")}


def by_row(store, run_id):
    found = counts_of(store.get(run_id))
    assert found is not None
    return {state: found[state] for state in ("done", "failed", "cancelled")}


async def test_a_run_that_ended_has_its_counts_in_its_row(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    await drive(store, {1, 4})
    assert by_row(store, "job-1") == by_journal(store, "job-1")
    assert by_row(store, "job-1") == {"done": 4, "failed": 2, "cancelled": 0}
    store.close()


async def test_a_retried_item_counts_once_in_the_row(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    await drive(store, {1, 4})
    await drive(store, {4}, resume="failed")
    assert by_row(store, "job-1") == by_journal(store, "job-1")
    assert by_row(store, "job-1") == {"done": 5, "failed": 1, "cancelled": 0}
    store.close()


async def test_the_row_of_a_run_that_goes_on_has_the_counts_so_far(tmp_path):
    store, seen = SqliteStore(tmp_path / "runs.db"), asyncio.Event()

    async def work(item):
        await seen.wait() if item else None
        return item

    async with (
        open_run("job", store=store, seed=1) as run,
        run.map(work, [0, 1], width=2) as outcomes,
    ):
        async for outcome in outcomes:
            if outcome.value == 0:
                assert by_row(store, "job-1") == {"done": 1, "failed": 0, "cancelled": 0}
                seen.set()
    store.close()


def test_counts_that_lag_behind_the_journal_are_not_shown():
    store = MemoryStore()
    row = begun(store)
    totals = RunTotals(row)
    events = [settled(1, "job/a", "done")]
    store.commit(row.id, row.epoch, events, totals.facts(events))
    assert by_row(store, row.id)["done"] == 1
    # As a driver of an earlier version does it: it keeps what the row has spent.
    store.commit(row.id, row.epoch, [settled(2, "job/b", "done")], store.get(row.id).spent)
    assert totals_of(store.get(row.id)) is None
    assert RunTotals(store.get(row.id)).facts([settled(3, "job/c", "done")]) == {}
    tallies = Tallies(store)
    tallies.update([store.get(row.id)])
    assert tallies.of(store.get(row.id))["done"] == 2


def test_a_run_without_events_is_known_to_have_no_items():
    store = MemoryStore()
    assert counts_of(begun(store)) == {
        "done": 0,
        "failed": 0,
        "cancelled": 0,
        "total": None,
        "usd": 0,
        "unpriced": 0,
        "tokens": 0,
    }


def test_what_calls_used_is_in_the_row_but_for_the_cancelled_ones():
    store = MemoryStore()
    row = begun(store)
    used = {"state": "done", "usd": 0.5, "input_tokens": 3, "output_tokens": 4}
    events = [
        Event(1, CALL_SETTLED, "job/a/call/1", 0.0, 0.0, None, used, None),
        Event(2, CALL_SETTLED, "job/a/call/2", 0.0, 0.0, None, {**used, "usd": None}, None),
        Event(
            3, CALL_SETTLED, "job/a/call/3", 0.0, 0.0, None, {**used, "state": "cancelled"}, None
        ),
        Event(4, ITEMS_COMPLETE, "job/input", 0.0, 0.0, None, {"items": 7}, None),
    ]
    store.commit(row.id, row.epoch, events, {"usd": 0.5, **RunTotals(row).facts(events)})
    found = counts_of(store.get(row.id))
    assert found is not None
    assert (found["usd"], found["unpriced"], found["tokens"], found["total"]) == (0.5, 1, 14, 7)
    assert without_totals(store.get(row.id).spent) == {"usd": 0.5}


def test_more_replaced_outcomes_than_are_remembered_leave_the_counting_to_the_journal(monkeypatch):
    monkeypatch.setattr("abreast.store.totals._MAX_REPLACED", 1)
    totals = RunTotals(begun(MemoryStore()))
    assert totals.facts([settled(1, "job/a", "failed")]) != {}
    totals.facts([settled(2, "job/b", "failed")])
    assert totals.facts([settled(3, "job/a", "done")]) == {}


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["done", "failed", "cancelled"])))
)
def test_the_counts_are_the_newest_outcomes_of_each_item(outcomes):
    store = MemoryStore()
    row = begun(store)
    totals, newest = RunTotals(row), {}
    for seq, (key, state) in enumerate(outcomes, 1):
        if newest.get(key) == "done":
            totals.replace(f"job/{key}", "done")  # the driver says that it runs it again
        newest[key] = state
        events = [settled(seq, f"job/{key}", state)]
        store.commit(row.id, row.epoch, events, totals.facts(events))
    assert by_row(store, row.id) == by_journal(store, row.id)


def test_a_long_run_does_not_hold_up_the_counts_of_others(monkeypatch):
    store, read = MemoryStore(), []
    for name, items in [("short", 1), ("middle", 3), ("long", 9)]:  # the newest is counted last
        row = begun(store, name)
        events = [settled(seq, f"{name}/{seq}", "done") for seq in range(1, 1 + items)]
        store.commit(row.id, row.epoch, events, {})
    events_of = store.events
    monkeypatch.setattr("abreast.views.progress._COUNT_SECONDS", 600.0)
    monkeypatch.setattr(
        store, "events", lambda run, **more: read.append(run) or events_of(run, **more)
    )
    tallies = Tallies(store)
    tallies.update(store.runs())
    assert read == ["short-1", "middle-1", "long-1"]
    assert [tallies.of(row)["done"] for row in store.runs()] == [9, 3, 1]

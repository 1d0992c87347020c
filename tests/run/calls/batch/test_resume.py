"""Runs in batches that are left and resumed: what was submitted is never submitted again."""

import asyncio

import pytest

import abreast
from abreast.core.errors import LaneParked
from abreast.core.events import BATCH_ENDED, BATCH_GATHERED, BATCH_SUBMITTED, CALL_SETTLED
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from tests.run.calls.batch.batches import (
    KINDS,
    Submissions,
    ask_all,
    open_batching,
    shorter,
    times_paid,
)

SIZE = 30


def events_of(path, *kinds):
    store = SqliteStore(path)
    try:
        (row,) = store.runs(limit=2)
        return list(each_event(store, row.id, set(kinds)))
    finally:
        store.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_parked_run_is_resumed_from_the_same_batches(kind, tmp_path):
    async with open_batching(kind, seconds=0.3) as (storm, opened):
        with pytest.raises(LaneParked, match="calls of lane/m wait in"):
            await ask_all(opened(batch_wait=0.0), tmp_path / "runs.db", SIZE)
        submitted = len(storm.batches())
        assert submitted == SIZE
        ended = events_of(tmp_path / "runs.db", CALL_SETTLED)
        left = [one.data for one in ended if one.data["state"] == "cancelled"]
        assert {facts.get("usd") or 0 for facts in left} == {0}
        outcomes = await ask_all(opened(), tmp_path / "runs.db", SIZE)
        assert [one.ok for one in outcomes] == [True] * SIZE
        assert len(storm.batches()) == submitted
        assert set(times_paid(storm).values()) == {1}
        assert sum(one.usage.requests for one in outcomes) == SIZE


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_is_interrupted_in_a_submission_looks_it_up(kind, tmp_path):
    terms = shorter(settle=0.0)
    async with open_batching(kind, terms=terms, batch_faults={"lost": 1.0}, seconds=0.05) as (
        storm,
        opened,
    ):
        slow = shorter(size=15, age=30.0, poll=3600.0, longest_poll=3600.0)
        running = asyncio.ensure_future(ask_all(opened(terms=slow), tmp_path / "runs.db", SIZE))
        await storm.until(lambda _: len(storm.batches()) == SIZE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert events_of(tmp_path / "runs.db", BATCH_SUBMITTED) == []
        storm.change(batch_faults={})
        outcomes = await ask_all(opened(), tmp_path / "runs.db", SIZE)
        assert [one.ok for one in outcomes] == [True] * SIZE
        assert set(times_paid(storm).values()) == {1}
        assert len(storm.batches()) == SIZE


async def test_a_submission_that_was_never_made_is_made_after_its_time(tmp_path):
    async with open_batching(batch_faults={"unsent": 1.0}) as (storm, opened):
        slow = shorter(size=15, age=30.0, poll=3600.0, longest_poll=3600.0)
        running = asyncio.ensure_future(ask_all(opened(terms=slow), tmp_path / "runs.db", SIZE))
        await storm.until(lambda _: storm._server.batches.batches.submissions == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        storm.change(batch_faults={})
        outcomes = await ask_all(opened(), tmp_path / "runs.db", SIZE)
        assert [one.ok for one in outcomes] == [True] * SIZE
        assert set(times_paid(storm).values()) == {1}
        ended = events_of(tmp_path / "runs.db", BATCH_ENDED)
        assert [event.data["state"] for event in ended].count("not submitted") == 2


async def test_a_batch_is_recorded_before_and_after_it_is_submitted(tmp_path):
    async with open_batching() as (storm, opened):
        await ask_all(opened(), tmp_path / "runs.db", SIZE)
        kinds = (BATCH_GATHERED, BATCH_SUBMITTED, BATCH_ENDED)
        found = events_of(tmp_path / "runs.db", *kinds)
        by_path = {}
        for event in found:
            by_path.setdefault(event.path, []).append(event.kind)
        assert list(by_path.values()) == [list(kinds)] * len(by_path)
        assert len(by_path) == len({row["batch"] for row in storm.batches()})


async def test_cancelling_a_run_cancels_its_batches_at_the_provider(tmp_path):
    async with open_batching(seconds=3600.0) as (storm, opened):
        place = tmp_path / "runs.db"
        submissions = Submissions()
        terms = shorter(size=15, age=30.0)  # two batches, however slow the machine is
        running = asyncio.ensure_future(
            ask_all(opened(terms=terms), place, SIZE, hooks=[submissions])
        )
        await submissions.reach(2)
        store = SqliteStore(place)
        store.ask(store.runs(limit=1)[0].id, "cancel", {}, 0.0)
        store.close()
        with pytest.raises(abreast.errors.CancelRequested):
            await running
        assert {row["state"] for row in storm.batches()} == {"cancelled"}
        states = [event.data["state"] for event in events_of(place, BATCH_ENDED)]
        assert set(states) == {"cancelled"}


async def test_a_run_that_ends_early_cancels_what_it_does_not_need(tmp_path):
    terms = shorter(size=10)
    async with open_batching(terms=terms, batch_fault_at={2: "slow"}, seconds=0.5) as (
        storm,
        opened,
    ):
        outcomes = await ask_all(opened(), tmp_path / "runs.db", 20, until=3)
        assert len(outcomes) == 3
        assert {row["state"] for row in storm.batches() if row["batch"] == 2} == {"cancelled"}

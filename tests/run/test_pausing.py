"""Work that waits for a person, and work that has changed since it was recorded."""

import asyncio

import pytest

import abreast
from abreast.core.errors import ItemChanged, OutcomeUnknown, Paused
from abreast.core.events import Event
from abreast.store.port import Driver
from abreast.testing import Gate, MemoryStore


async def mapped(run, fn, items, **options):
    found = []
    async for outcome in run.map(fn, items, **{"width": 4, "name": "work", **options}):
        found.append((outcome.index, outcome.value if outcome.ok else type(outcome.error).__name__))
    return found


async def test_a_pause_ends_the_map_at_its_place_and_what_runs_is_stopped():
    store, gate, ended = MemoryStore(), Gate(), []

    async def work(item):
        try:
            await gate.pass_(item)
        finally:
            ended.append(item)
        if item == 2:
            raise Paused("somebody must look at 2")
        return item

    found = []
    with pytest.raises(Paused, match="look at 2"):
        async with abreast.open_run("r", store=store) as run:

            async def release():
                async for outcome in run.map(work, range(8), width=4, name="work"):
                    found.append(outcome.value)

            done = asyncio.ensure_future(release())
            await gate.wait_for(0, 1, 2, 3)
            gate.open(2)  # the pause comes first in time
            gate.open(0, 1)
            await done
    assert found == [0, 1]
    assert sorted(ended) == [0, 1, 2, 3]  # nothing new was started, and 3 did not go on
    assert store.get("r-1").state == "paused"
    assert store.get("r-1").reason == "somebody must look at 2"
    paths = [f"r/work/{n:04}" for n in range(8)]
    assert "r/work/0002" not in store.recorded("r-1", paths)  # it has not failed


async def test_a_paused_run_goes_on_where_it_stopped():
    store, ran, asked = MemoryStore(), [], {"answer": None}

    async def work(item):
        ran.append(item)
        if item == 2 and asked["answer"] is None:
            raise Paused("somebody must look")
        return item

    with pytest.raises(Paused):
        async with abreast.open_run("r", store=store) as run:
            await mapped(run, work, range(4), width=1)
    asked["answer"] = "yes"
    async with abreast.open_run("r", store=store) as run:
        assert await mapped(run, work, range(4), width=1) == [(n, n) for n in range(4)]
    assert ran == [0, 1, 2, 2, 3]


async def test_a_pause_beneath_an_item_is_the_items_pause():
    async def leaf(item):
        if item == "b1":
            raise Paused("look")
        return item

    async def outer(item):
        return await abreast.current().run.step("inner", leaf, f"{item}1")

    found = []
    with pytest.raises(Paused, match="look"):
        async with abreast.open_run("r") as run:
            async for outcome in run.map(outer, "abc", width=3):
                found.append(outcome.value)
    assert found == ["a1"]


async def test_items_that_changed_are_run_again_if_asked():
    store, ran = MemoryStore(), []

    async def work(item):
        ran.append(item)
        return item.upper()

    async def once(items, **options):
        async with abreast.open_run(
            "r", store=store, run_id="r-1" if ran else None, resume="auto"
        ) as run:
            return [value for _, value in await mapped(run, work, items, **options)]

    assert await once("abc") == ["A", "B", "C"]
    with pytest.raises(ItemChanged):
        await once("axc")
    assert await once("axc", on_change="rerun") == ["A", "X", "C"]
    assert await once("axc") == ["A", "X", "C"]
    assert ran == ["a", "b", "c", "x"]


async def test_failed_goes_on_with_failures_but_leaves_work_in_doubt_alone():
    store, ran = MemoryStore(), []
    row = store.begin(
        "job", kind="script", seed=1, manifest={}, tags=(), driver=Driver(1, "elsewhere", 0.0)
    )
    started = Event(1, "item-started", "job/charge", 0.0, 0.0)
    store.commit(row.id, row.epoch, [started], {})
    store.let_go(row.id)

    async def charge(amount):
        ran.append(amount)
        return amount

    async with abreast.open_run("job", store=store, resume="failed") as run:
        with pytest.raises(OutcomeUnknown):
            await run.step("charge", charge, 5, effect="once")
    assert ran == []
    async with abreast.open_run("job", store=store, resume="retry") as run:
        assert await run.step("charge", charge, 5, effect="once") == 5
    assert ran == [5]


async def test_failed_goes_on_with_failures():
    store, ran = MemoryStore(), []

    async def work(item):
        ran.append(item)
        if item == 1 and len(ran) < 3:
            raise ValueError(item)
        return item

    async with abreast.open_run("r", store=store) as run:
        assert await mapped(run, work, [0, 1], width=1) == [(0, 0), (1, "ValueError")]
    async with abreast.open_run("r", store=store, resume="failed") as run:
        assert await mapped(run, work, [0, 1], width=1) == [(0, 0), (1, 1)]
    assert ran == [0, 1, 1]


async def test_what_is_done_about_a_change_is_checked():
    async with abreast.open_run("r") as run:
        with pytest.raises(ValueError, match="on_change must be 'refuse' or 'rerun', not 'maybe'"):
            run.map(str, [1], width=1, on_change="maybe")

"""The start of an item is written if the item goes on for a moment; its end says the rest."""

import asyncio

import abreast
from abreast.testing import Gate, MemoryStore


async def clock_turn():
    """Let the loop, and the store's thread, go on."""
    await asyncio.sleep(0)


def kinds(store, path):
    return [event.kind for event in store.events("r-1", limit=1000) if event.path == path]


async def test_the_start_of_a_short_item_is_not_written_and_its_end_has_its_times():
    store = MemoryStore()

    async def work(item):
        return item

    async with abreast.open_run("r", store=store) as run:
        await run.map(work, range(3), width=2).values()
    assert kinds(store, "r/work/0001") == ["item-settled"]
    settled = next(
        event for event in store.events("r-1", limit=1000) if event.path == "r/work/0001"
    )
    assert len(settled.data["service"]) == 1
    assert [event.seq for event in store.events("r-1", limit=1000)] == list(
        range(1, store.get("r-1").last_seq + 1)
    )


async def test_the_start_of_an_item_that_goes_on_is_written_with_its_own_time():
    store, gate = MemoryStore(), Gate()

    async def work(item):
        await gate.pass_(item)

    async with abreast.open_run("r", store=store) as run:
        done = asyncio.ensure_future(run.map(work, "ab", width=2).values())
        await gate.wait_for("a", "b")
        for count in (1, 2):
            while len(kinds(store, "r/work/0000")) < count:
                await clock_turn()
            gate.open("a")
        gate.open("b")
        await done
    started, settled = (
        event for event in store.events("r-1", limit=1000) if event.path == "r/work/0000"
    )
    assert (started.kind, settled.kind) == ("item-started", "item-settled")
    assert started.mono <= settled.mono - settled.data["service"][0] + 0.05


async def test_whoever_observes_sees_every_start_at_once():
    seen, store = [], MemoryStore()

    async def work(item):
        return item

    async with abreast.open_run(
        "r", store=store, hooks=[lambda event: seen.append(event.kind)]
    ) as run:
        await run.map(work, range(3), width=2).values()
    assert seen.count("item-started") == 3
    assert kinds(store, "r/work/0001") == ["item-started", "item-settled"]

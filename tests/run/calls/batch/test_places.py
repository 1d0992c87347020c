"""Items that wait for a batch: they have no place in the width, and count against the span."""

import asyncio

import pytest

import abreast
from abreast.limits.slots import Slots
from tests.run.calls.batch.batches import ask_all, open_batching, shorter

WHOLE = shorter(size=30, age=30.0)  # a batch is submitted when it is full


@pytest.mark.parametrize("store", [True, False])
async def test_a_map_of_width_one_fills_a_batch(store, tmp_path):
    async with open_batching(terms=WHOLE) as (storm, opened):
        place = tmp_path / "runs.db" if store else None
        outcomes = await ask_all(opened(), place, 60, width=1)
        assert [one.ok for one in outcomes] == [True] * 60
        assert {row["batch"] for row in storm.batches()} == {1, 2}


async def test_no_more_than_the_width_execute_when_a_batch_comes_back(tmp_path):
    executing = peak = 0
    async with open_batching(terms=WHOLE) as (_, opened):
        model = opened()

        async def ask(value):
            nonlocal executing, peak
            await model.ask(f"prompt {value}", max_tokens=9)
            executing += 1
            peak = max(peak, executing)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            executing -= 1

        async with model, abreast.open_run("run") as run:
            opened_map = run.map(ask, range(30), width=3)
            assert len([one async for one in opened_map]) == 30
            assert opened_map.peak == 3
        assert peak == 3


async def test_an_item_lends_its_slots_while_it_waits():
    async with open_batching(terms=WHOLE) as (storm, opened):
        model = opened()

        async def ask(value):
            return await model.ask(f"prompt {value}", max_tokens=9)

        async with model, abreast.open_run("run", lanes={"mine": Slots(2)}) as run:
            outcomes = [one async for one in run.map(ask, range(30), width=5, lane="mine")]
        assert all(one.ok for one in outcomes)
        assert {row["batch"] for row in storm.batches()} == {1}


async def test_an_item_gives_up_its_place_when_all_beneath_it_wait():
    async with open_batching(terms=WHOLE) as (storm, opened):
        model = opened()

        async def part(value):
            return (await model.ask(f"prompt {value}", max_tokens=9)).text

        async def whole(value):
            below = abreast.current().run
            parts = [10 * value + number for number in range(3)]
            return [one.value async for one in below.map(part, parts, width=1)]

        async with model, abreast.open_run("run") as run:
            outcomes = [one async for one in run.map(whole, range(10), width=1)]
        assert all(len(one.value) == 3 and None not in one.value for one in outcomes)
        assert {row["batch"] for row in storm.batches()} == {1}


@pytest.mark.parametrize("later", [False, True])
async def test_an_item_keeps_its_place_while_another_map_beneath_it_works(later):
    working = peak = 0
    asked = [asyncio.Semaphore(0) for _ in range(10)]
    two_work, go_on = asyncio.Event(), asyncio.Event()
    async with open_batching(terms=WHOLE) as (storm, opened):
        model = opened()

        async def ask(value):
            asked[value // 3].release()
            return (await model.ask(f"prompt {value}", max_tokens=9)).text

        async def work(_):
            nonlocal working, peak
            working += 1
            peak = max(peak, working)
            if working == 2:
                two_work.set()
            await go_on.wait()
            working -= 1

        async def whole(value):
            below = abreast.current().run
            parts = range(3 * value, 3 * value + 3)

            async def ask_all():
                return [one.ok async for one in below.map(ask, parts, width=3, name="asks")]

            async def work_once():
                for _ in parts if later else ():  # once all calls are made
                    await asked[value].acquire()
                return [one.ok async for one in below.map(work, [value], width=1, name="works")]

            return await asyncio.gather(ask_all(), work_once())

        async def let_others_start():
            await two_work.wait()
            for _ in range(300):  # turns of the loop, in which a third item would start
                await asyncio.sleep(0)
            go_on.set()

        async with model, abreast.open_run("run") as run, asyncio.timeout(60):
            waiting = asyncio.create_task(let_others_start())
            outcomes = [one async for one in run.map(whole, range(10), width=2)]
            await waiting
        assert all(one.value == [[True] * 3, [True]] for one in outcomes)
        assert peak == 2
        assert {row["batch"] for row in storm.batches()} == {1}


async def test_calls_side_by_side_in_one_item_wait_together():
    async with open_batching() as (storm, opened):
        model = opened()

        async def ask(value):
            calls = (model.ask(f"{value} {number}", max_tokens=9) for number in range(3))
            return [reply.text for reply in await asyncio.gather(*calls)]

        async with model, abreast.open_run("run") as run:
            outcomes = [one async for one in run.map(ask, range(5), width=1)]
        assert all(len(one.value) == 3 for one in outcomes)
        assert len(storm.batches()) == 15


async def test_an_item_that_is_stopped_while_it_waits_leaves_the_others_their_places(tmp_path):
    async with open_batching(terms=shorter(size=5), seconds=0.0) as (_, opened):
        outcomes = await ask_all(opened(), tmp_path / "runs.db", 50, width=2, until=7)
        assert len(outcomes) == 7


def wait_in_a_thread(model):
    def ask(value):
        return asyncio.run(model.ask(str(value), max_tokens=9))

    return ask


async def test_only_async_functions_can_wait_for_a_batch():
    async with open_batching() as (storm, opened):
        model = opened()
        async with abreast.open_run("run") as run:
            (one,) = [one async for one in run.map(wait_in_a_thread(model), [1], width=1)]
        assert "only `async` functions" in str(one.error)
        assert storm.batches() == []


async def test_a_call_outside_of_a_map_is_refused():
    async with open_batching() as (_, opened), opened() as model:
        with pytest.raises(ValueError, match="by the items of a run's map"):
            await model.ask("prompt", max_tokens=9)

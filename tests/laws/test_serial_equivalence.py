"""Law 1: the outcomes are those of a plain loop.

At any width, span, order of latencies and lane limits, with any failures and any stop rule.
"""

import asyncio

import pytest
from hypothesis import given

import abreast
from abreast.testing import Gate, MemoryStore
from tests.laws.plain import World, plain_loop, side_by_side, told, worlds
from tests.properties import tried


def leftovers() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def agree(world: World, **opening: object) -> None:
    expected = plain_loop(world.items, world.reply, world.used, world.until, world.on_error)
    outcomes, error, mapped = await side_by_side(world, **opening)
    assert (outcomes, error) == expected
    assert mapped.peak <= world.width
    assert mapped.timing_dependent == frozenset()
    assert not leftovers()


@tried(300)
@given(worlds())
def test_a_map_in_memory_returns_what_the_plain_loop_returns(world):
    asyncio.run(agree(world))


@tried(150)
@given(worlds())
def test_a_map_with_a_store_returns_what_the_plain_loop_returns(world):
    asyncio.run(agree(world, store=MemoryStore()))


@tried(60)
@given(worlds())
def test_a_map_that_is_observed_returns_what_the_plain_loop_returns(world):
    asyncio.run(agree(world, hooks=[lambda event: None]))


@tried(6)
@given(worlds(most=8))
def test_a_map_in_processes_returns_what_the_plain_loop_returns(world):
    asyncio.run(agree(world, executor="process", store=MemoryStore()))


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@tried(20)
@given(worlds())
def test_a_map_on_a_cluster_returns_what_the_plain_loop_returns(world):
    asyncio.run(agree(world, executor="ray", store=MemoryStore()))


@pytest.mark.parametrize("width", [1, 2, 5])
async def test_outcomes_come_in_item_order_under_forced_reverse_completion(width):
    gate = Gate()

    async def work(item):
        await gate.pass_(item)
        return item

    async with abreast.open_run("law") as run, run.map(work, range(width), width=width) as outcomes:
        await gate.wait_for(*range(width))
        for item in reversed(range(width)):
            gate.open(item)
        assert [outcome.value async for outcome in outcomes] == list(range(width))


async def test_a_later_failure_that_comes_first_in_time_is_not_the_one_that_halts():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)
        if item in (2, 4):
            raise LookupError(item)
        return item

    async with abreast.open_run("law") as run:
        mapped = run.map(work, range(8), width=6, on_error="halt")
        async with mapped as outcomes:
            await gate.wait_for(*range(6))
            gate.open(4)
            gate.open(5)
            gate.open(3)
            gate.open(2)
            gate.open(0, 1)
            seen = [outcome async for outcome in outcomes]
    assert [told(outcome)[:3] for outcome in seen[:2]] == [(0, "0000", "done"), (1, "0001", "done")]
    assert [outcome.index for outcome in seen] == [0, 1, 2]
    assert seen[2].error.args == (2,)
    assert 7 not in [outcome.index for outcome in seen]


async def test_the_predicate_of_until_is_called_once_per_outcome_in_order():
    asked = []

    async def work(item):
        for _ in range(5 - item % 5):
            await asyncio.sleep(0)
        return item

    def enough(outcome):
        asked.append(outcome.index)
        return outcome.value == 6

    async with abreast.open_run("law") as run:
        seen = [outcome.value async for outcome in run.map(work, range(100), width=7, until=enough)]
    assert seen == list(range(7))
    assert asked == list(range(7))


async def test_a_raising_predicate_is_raised_at_its_place():
    def broken(outcome):
        if outcome.index == 2:
            raise ZeroDivisionError("in the predicate")
        return False

    async def work(item):
        return item

    seen = []
    async with abreast.open_run("law") as run:
        with pytest.raises(ZeroDivisionError, match="in the predicate"):
            async for outcome in run.map(work, range(9), width=3, until=broken):
                seen.append(outcome.index)
    assert seen == [0, 1, 2]


async def test_an_error_of_the_items_is_raised_after_the_outcomes_before_it():
    def items():
        yield 1
        yield 2
        raise OSError("the items broke")

    async def work(item):
        return item

    seen = []
    async with abreast.open_run("law") as run:
        with pytest.raises(OSError, match="the items broke"):
            async for outcome in run.map(work, items(), width=2):
                seen.append(outcome.value)
    assert seen == [1, 2]


async def test_completion_order_is_as_they_come_and_says_so():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)
        return item

    async with (
        abreast.open_run("law") as run,
        run.map(work, range(3), width=3, order="completion") as outcomes,
    ):
        await gate.wait_for(0, 1, 2)
        seen = []
        for item in (2, 0, 1):
            gate.open(item)
            seen.append((await anext(outcomes)).value)
        assert seen == [2, 0, 1]
        assert outcomes.timing_dependent == {"order=completion"}


async def test_an_endless_iterator_ends_with_until():
    def forever():
        number = 0
        while True:
            yield number
            number += 1

    async def work(item):
        return item

    async with abreast.open_run("law") as run:
        assert [o.value async for o in run.map(work, forever(), width=4, until=3)] == [0, 1, 2]


async def test_async_items_are_read_lazily_and_in_order():
    read = []

    async def items():
        for number in range(100):
            read.append(number)
            yield number

    async def work(item):
        return item

    async with abreast.open_run("law") as run:
        seen = [o.value async for o in run.map(work, items(), width=3, span=5, until=10)]
    assert seen == list(range(10))
    assert len(read) <= 10 + 5

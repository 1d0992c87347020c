"""Law 6: nothing is left after success, failure, exception, outer cancellation, timeout."""

import asyncio
import gc
import threading
import warnings

import pytest

import abreast
from abreast.run.map.scheduler import LeftBehind
from abreast.testing import Gate


def others() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def forever(item):
    await asyncio.get_running_loop().create_future()


async def test_after_success_no_task_and_no_thread_is_left():
    before = threading.active_count()

    def work(item):
        return item

    async with abreast.open_run("law") as run:
        assert await run.map(work, range(20), width=5).values() == list(range(20))
        assert not others()
        assert threading.active_count() == before


async def test_after_an_exception_in_the_block_no_task_is_left():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    with pytest.raises(KeyError):
        async with abreast.open_run("law") as run:
            async with run.map(work, range(9), width=3):
                await gate.wait_for(0, 1, 2)
                raise KeyError("mine")
    assert not others()


async def test_leaving_the_loop_early_ends_the_rest_at_once_where_python_notices():
    ended = []

    async def work(item):
        try:
            if item:
                await asyncio.get_running_loop().create_future()
        finally:
            ended.append(item)
        return item

    async with abreast.open_run("law") as run:
        async for outcome in run.map(work, range(9), width=4):
            assert outcome.value == 0
            break
        gc.collect()
        for _ in range(10):
            await asyncio.sleep(0)
        assert sorted(ended) == [0, 1, 2, 3, 4]
        assert not others()


async def test_a_map_left_open_is_ended_with_the_run():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    async with abreast.open_run("law") as run:
        mapped = run.map(work, range(9), width=3)
        await mapped.__aenter__()
        await gate.wait_for(0, 1, 2)
        assert len(others()) == 3
    assert not others()


async def test_outer_cancellation_ends_everything_and_stays_a_cancellation():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    async def outer():
        async with abreast.open_run("law") as run:
            await run.map(work, range(9), width=3).values()

    task = asyncio.ensure_future(outer())
    await gate.wait_for(0, 1, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not others()


async def test_items_queued_behind_a_cancellation_never_ran():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    async def outer():
        async with abreast.open_run("law") as run:
            await run.map(work, range(9), width=3).values()

    task = asyncio.ensure_future(outer())
    await gate.wait_for(0, 1, 2)
    task.cancel()
    await asyncio.wait([task])
    assert gate.arrived == [0, 1, 2]


async def test_a_callee_that_swallows_one_cancellation_does_not_hold_us():
    swallowed, ready = [], asyncio.Event()

    async def stubborn(item):
        try:
            ready.set()
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            swallowed.append(item)
            await asyncio.get_running_loop().create_future()

    async def outer():
        async with abreast.open_run("law") as run:
            await run.map(stubborn, range(1), width=1).values()

    task = asyncio.ensure_future(outer())
    await ready.wait()
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()
    assert swallowed == [0]
    assert not others()


async def test_a_callee_that_swallows_every_cancellation_is_named():
    ready, release = asyncio.Event(), asyncio.Event()

    async def immortal(item):
        ready.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def outer():
        async with abreast.open_run("law") as run:
            await run.map(immortal, range(1), width=1).values()

    task = asyncio.ensure_future(outer())
    await ready.wait()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task.cancel()
        await asyncio.wait([task], timeout=60)
    assert task.cancelled()
    assert any(
        issubclass(w.category, LeftBehind) and "law/immortal/0000" in str(w.message) for w in caught
    )
    release.set()
    await asyncio.wait(others(), timeout=60)


async def test_a_thread_that_cannot_be_stopped_is_named_and_does_not_hold_us():
    ready, release = threading.Event(), threading.Event()

    def blocked(item):
        ready.set()
        release.wait(60)

    async def outer():
        async with abreast.open_run("law") as run:
            await run.map(blocked, ["the blocked one"], width=1).values()

    task = asyncio.ensure_future(outer())
    await asyncio.to_thread(ready.wait, 10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task.cancel()
        await asyncio.wait([task], timeout=60)
    assert task.cancelled()
    assert any(
        issubclass(w.category, LeftBehind) and "the blocked one" in str(w.message) for w in caught
    )
    release.set()


async def test_a_generator_of_items_is_closed():
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append("sync")

    async def async_items():
        try:
            for number in range(100):
                yield number
        finally:
            closed.append("async")

    async def work(item):
        return item

    async with abreast.open_run("law") as run:
        await run.map(work, items(), width=2, until=3, name="a").values()
        await run.map(work, async_items(), width=2, until=3, name="b").values()
    assert closed == ["sync", "async"]


async def test_losers_that_fail_are_listed_and_do_not_mask_the_success():
    gate = Gate()

    async def work(item):
        try:
            await gate.pass_(item)
        except asyncio.CancelledError:
            raise LookupError(f"loser {item}") from None
        return item

    async with abreast.open_run("law") as run:
        mapped = run.map(work, range(3), width=3, until=1)
        async with mapped as outcomes:
            await gate.wait_for(0, 1, 2)
            gate.open(0)
            assert [o.value async for o in outcomes] == [0]
        # A cancelled item that answers with another error is cancelled all the same: that error was
        # our doing.
        assert mapped.losers == ()
    assert not others()


async def test_halting_cancels_what_runs_and_starts_nothing_new():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)
        raise LookupError(item)

    async with abreast.open_run("law") as run:
        async with run.map(work, range(20), width=3, on_error="halt") as outcomes:
            await gate.wait_for(0, 1, 2)
            gate.open(0)
            seen = [o.index async for o in outcomes]
        assert seen == [0]
    assert gate.arrived == [0, 1, 2]
    assert not others()


async def test_a_timed_out_item_leaves_nothing_running():
    async with abreast.open_run("law") as run:
        outcomes = [o async for o in run.map(forever, range(2), width=2, timeout=0.01)]
    assert [type(o.error).__name__ for o in outcomes] == ["TimedOut", "TimedOut"]
    assert not others()

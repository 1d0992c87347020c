"""The contract of all executors."""

import asyncio
import traceback

import pytest

import abreast
from abreast.core.errors import TimedOut
from abreast.core.outcome import Cancelled, Done, Failed
from abreast.executors.processes import ProcessExecutor
from abreast.executors.ray.executor import RayExecutor
from abreast.executors.tasks import LocalExecutor
from abreast.testing import ManualClock
from tests.executors import work
from tests.executors.meeting import open_meeting
from tests.executors.ray.cluster import no_work_left
from tests.executors.traces import nothing_left

pytestmark = pytest.mark.usefixtures("unmeasured")

EXECUTORS = {"local": LocalExecutor, "process": ProcessExecutor, "ray": RayExecutor}


@pytest.fixture(params=["local", "process", pytest.param("ray", marks=pytest.mark.ray)])
def executor(request):
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return request.param


def leaves_nothing(executor):
    """Of Ray, the connections to agents stay: they serve the next map. What they did may not."""
    return no_work_left() if executor == "ray" else nothing_left()


async def outcomes(fn, items, executor, **options):
    with leaves_nothing(executor):
        async with abreast.open_run("contract", seed=7, executor=executor) as run:
            return [outcome async for outcome in run.map(fn, items, **{"width": 2, **options})]


@pytest.mark.parametrize("fn", [work.double, work.double_later, work.double_in_a_coroutine])
async def test_values_come_back_in_item_order(executor, fn):
    assert [outcome.value for outcome in await outcomes(fn, range(20), executor, width=3)] == list(
        range(0, 40, 2)
    )


@pytest.mark.parametrize("fn", [work.double, work.double_later])
async def test_a_bound_function_can_be_called_and_closed(executor, fn):
    with leaves_nothing(executor):
        bound = EXECUTORS[executor]().bind(fn, 2)
        assert await asyncio.gather(bound.async_call(1), bound.async_call(2)) == [2, 4]
        assert await bound.close(60) == []


async def test_one_that_was_never_called_closes_too(executor):
    assert await EXECUTORS[executor]().bind(work.double, 2).close(60) == []


@pytest.mark.parametrize("fn", [work.fail, work.fail_later])
async def test_an_exception_is_the_items_own_with_its_traceback(executor, fn):
    (failed,) = await outcomes(fn, ["value"], executor)
    assert type(failed) is Failed
    assert type(failed.error) is ValueError
    assert failed.error.args == ("no such number",)
    assert "raise failure" in "".join(traceback.format_exception(failed.error))


async def test_exceptions_keep_what_they_hold(executor):
    failed = await outcomes(work.fail, ["os", "odd", "wordy", "group"], executor, width=1)
    missing, odd, wordy, group = [outcome.error for outcome in failed]
    assert (type(missing), missing.errno, missing.filename) == (FileNotFoundError, 2, "there")
    assert (type(odd), str(odd), odd.code, odd.why) == (work.Odd, "odd 3", 3, ["x"])
    assert (type(wordy), str(wordy)) == (work.Wordy, "it was me")
    assert [type(inner) for inner in group.exceptions] == [ValueError, KeyError]


async def test_an_exit_or_cancellation_of_its_own_is_only_the_items_failure(executor):
    left, given_up, fine = await outcomes(
        work.fail_later, ["exit", "cancelled", "fine"], executor, width=1
    )
    assert (type(left.error), left.error.code) == (SystemExit, 5)
    assert type(given_up.error) is asyncio.CancelledError
    assert fine.value == "fine"


async def test_a_stopiteration_does_not_end_the_loop(executor):
    stopped, fine = await outcomes(work.fail, ["stopiteration", "fine"], executor)
    assert type(stopped.error) is RuntimeError
    assert type(stopped.error.__cause__) is StopIteration
    assert fine.value == "fine"


async def test_raised_at_its_place_it_is_the_exception_itself(executor):
    with leaves_nothing(executor):
        async with abreast.open_run("contract", executor=executor) as run:
            with pytest.raises(ValueError, match="no such number"):
                [
                    outcome
                    async for outcome in run.map(
                        work.fail, ["a", "value", "b"], width=2, on_error="raise"
                    )
                ]


@pytest.mark.parametrize("fn", [work.meet, work.meet_later])
async def test_the_peak_is_the_width(executor, fn):
    async with open_meeting() as meeting, abreast.open_run("contract", executor=executor) as run:
        async with run.map(fn, map(meeting.ticket, range(9)), width=3) as outcomes:
            await meeting.wait_for(3)  # three are inside at once: fewer would wait here for ever
            meeting.release_all()
            assert [outcome.value async for outcome in outcomes] == list(range(9))
        assert meeting.most == outcomes.peak == 3


@pytest.mark.parametrize("fn", [work.meet, work.meet_later])
async def test_items_that_end_in_any_order_leave_in_theirs(executor, fn):
    async with open_meeting() as meeting, abreast.open_run("contract", executor=executor) as run:
        async with run.map(fn, map(meeting.ticket, range(4)), width=2, span=4) as outcomes:
            await meeting.wait_for(2)
            meeting.release(1)
            await meeting.wait_for(3)  # the slow first item does not idle the window
            meeting.release(2)
            await meeting.wait_for(4)
            meeting.release(3, 0)
            assert [outcome.value async for outcome in outcomes] == [0, 1, 2, 3]


@pytest.mark.parametrize("fn", [work.where, work.where_later])
async def test_current_says_where_the_item_is(executor, fn):
    lanes = {"slow": abreast.Slots(2), "desk": abreast.Pool(["left", "right"])}
    async with abreast.open_run("contract", seed=7, executor=executor, lanes=lanes) as run:
        found = [
            outcome.value
            async for outcome in run.map(fn, "ab", width=1, name="where", lane="slow", hold="desk")
        ]
    seeds = [place[3] for place in found]
    desks = [place[5].pop("desk") for place in found]
    assert found == [
        ("contract/where/0000", "0000", 1, seeds[0], "slow", {}),
        ("contract/where/0001", "0001", 1, seeds[1], "slow", {}),
    ]
    assert set(desks) <= {"left", "right"}
    async with abreast.open_run("contract", seed=7) as run:
        alone = [outcome.value[3] async for outcome in run.map(fn, "ab", width=2, name="where")]
    assert seeds == alone  # the same seed in every executor


async def test_outside_of_a_map_nothing_is_current(executor):
    bound = EXECUTORS[executor]().bind(work.where, 1)
    with pytest.raises(RuntimeError, match="inside an item"):
        await bound.async_call(0)
    await bound.close(60)


async def test_context_is_carried_or_not_as_declared_and_never_spoilt(executor):
    work.COLOUR.set("red")
    expected = "red" if EXECUTORS[executor].carries.contextvars else "none"
    assert [outcome.value for outcome in await outcomes(work.colour, range(4), executor)] == [
        expected
    ] * 4
    assert work.COLOUR.get() == "red"


async def test_closures_are_carried_or_refused_as_declared(executor):
    started = []

    def add(x):
        started.append(x)
        return x

    if EXECUTORS[executor].carries.closures:
        assert [outcome.value for outcome in await outcomes(add, [1], executor)] == [1]
    else:
        with pytest.raises(TypeError, match="module-level functions only"):
            await outcomes(add, [1], executor)
        assert started == []


async def test_a_step_takes_several_arguments(executor):
    async with abreast.open_run("contract", executor=executor) as run:
        assert await run.step("none", dict) == {}
        assert await run.step("sum", divmod, 7, 2) == (3, 1)
        assert await run.step("later", work.double_later, 4) == 8


async def test_an_item_that_times_out_fails_and_the_next_one_works(executor):
    clock = ManualClock()
    async with (
        open_meeting() as meeting,
        abreast.open_run("contract", executor=executor, clock=clock) as run,
    ):
        items = map(meeting.ticket, range(2))
        async with run.map(work.meet_later, items, width=1, timeout=5) as outcomes:
            await meeting.wait_for(1)
            await clock.advance(5)
            await meeting.wait_for(2)
            meeting.release(1)
            late, fine = [outcome async for outcome in outcomes]
    assert type(late.error) is TimedOut
    assert type(fine) is Done


@pytest.mark.parametrize("way", ["left", "raised", "cancelled"])
async def test_nothing_is_left_however_the_block_is_left(executor, way):
    async def block(meeting):
        async with abreast.open_run("contract", executor=executor) as run:
            async with run.map(work.meet_later, map(meeting.ticket, range(9)), width=3):
                await meeting.wait_for(3)
                if way == "raised":
                    raise LookupError
                if way == "cancelled":
                    asyncio.current_task().cancel()
                    await asyncio.Event().wait()

    tasks = asyncio.all_tasks()
    with leaves_nothing(executor):
        async with open_meeting() as meeting:
            (ended,) = await asyncio.gather(block(meeting), return_exceptions=True)
        assert asyncio.all_tasks() == tasks
    assert (
        type(ended)
        is {"left": type(None), "raised": LookupError, "cancelled": asyncio.CancelledError}[way]
    )


async def test_what_ran_past_the_stop_is_ended(executor):
    async with open_meeting() as meeting, abreast.open_run("contract", executor=executor) as run:
        async with run.map(
            work.meet_later, map(meeting.ticket, range(9)), width=3, until=1
        ) as outcomes:
            await meeting.wait_for(3)
            meeting.release(0)
            assert [
                outcome.value async for outcome in outcomes if type(outcome) is not Cancelled
            ] == [0]

"""The laws with every executor and every store: where work is done, and where it is recorded.

The other modules try each law with hundreds of examples in one process; here are few of each.
"""

import asyncio
from collections import Counter
from contextlib import ExitStack, closing
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import abreast
from abreast.core.errors import BudgetSpent, RunBusy, StoreFull
from abreast.store.postgres.store import PostgresStore
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import MemoryStore
from tests.dying import Dying
from tests.executors.meeting import open_meeting
from tests.executors.work import meet_later
from tests.laws.plain import plain_loop, told, worlds
from tests.laws.test_serial_equivalence import agree
from tests.laws.world import Logged, World
from tests.properties import tried

# Fixtures are shared by all examples: each example has a run of its own.
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
EXECUTORS = ["local", "process", pytest.param("ray", marks=pytest.mark.ray)]


@pytest.fixture(params=EXECUTORS)
def executor(request):
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return request.param


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    with ExitStack() as stack:
        if request.param == "memory":
            yield stack.enter_context(closing(MemoryStore()))
        elif request.param == "sqlite":
            yield stack.enter_context(closing(SqliteStore(str(tmp_path / "runs.db"))))
        else:
            url = request.getfixturevalue("postgres_url")
            yield stack.enter_context(closing(PostgresStore(url)))


@pytest.mark.usefixtures("unmeasured")
@tried(3, suppress_health_check=SHARED)
@given(worlds(most=6))
def test_outcomes_order_stop_and_usage_are_those_of_a_plain_loop(executor, store, world):
    asyncio.run(agree(world, executor=executor, store=store, resume="never"))


@pytest.mark.usefixtures("unmeasured")
async def test_as_many_as_the_width_work_at_once_and_never_more(executor, store):
    async with (
        open_meeting() as meeting,
        abreast.open_run("width", executor=executor, store=store) as run,
        run.map(meet_later, map(meeting.ticket, range(7)), width=3) as mapped,
    ):
        await meeting.wait_for(3)
        meeting.release_all()
        assert [outcome.value async for outcome in mapped] == list(range(7))
        assert (mapped.peak, meeting.most) == (3, 3)


def begun(log):
    return Counter(map(int, log.read_text().split())) if log.exists() else Counter()


@pytest.mark.usefixtures("unmeasured")
@tried(2, suppress_health_check=SHARED)
@given(worlds(most=6), st.lists(st.integers(0, 8), min_size=1, max_size=2))
def test_after_crashes_and_resumes_the_outcomes_are_those_of_the_plain_loop(
    executor, store, tmp_path, world, commits
):
    log, name = tmp_path / uuid4().hex, f"crash-{uuid4().hex}"
    expected = plain_loop(world.items, world.reply, world.used, world.until, world.on_error)

    async def run_it(opened):
        found, error = [], None
        options = {"executor": executor, "lanes": world.lane_limits(), "seed": 3}
        async with abreast.open_run(name, store=opened, **options) as run:
            mapped = run.map(Logged(world, str(log)), world.items, **world.options(), name="map")
            try:
                async for outcome in mapped:
                    found.append(told(outcome))
            except Exception as raised:
                if isinstance(raised, StoreFull):
                    raise
                error = raised
        return found, error

    async def crash_and_resume():
        crashes = 0
        for count in commits:
            try:
                return await run_it(Dying(store, count)), crashes
            except StoreFull:
                crashes += 1
        return await run_it(store), crashes

    (found, error), crashes = asyncio.run(crash_and_resume())
    assert [one[:3] for one in found] == [one[:3] for one in expected[0]]
    assert [one[4] for one in found] == [one[4] for one in expected[0]]
    assert (error is None) == (expected[1] is None)
    repeated = sum(begun(log).values()) - len(begun(log))
    retried = world.retries * len(world.fails)
    assert repeated <= crashes * world.width + (crashes + 1) * retried


@pytest.mark.usefixtures("unmeasured")
async def test_what_is_recorded_is_not_run_again_and_two_drivers_are_refused(
    executor, store, tmp_path
):
    world, log = _calm(6), tmp_path / "log"
    for resume in ("never", "must"):
        options = {"store": store, "executor": executor, "resume": resume}
        run_id = "once-1" if resume == "must" else None
        async with abreast.open_run("once", **options, run_id=run_id) as run:
            mapped = run.map(Logged(world, str(log)), world.items, width=2, name="map")
            assert await mapped.values() == [item * 10 for item in world.items]
            with pytest.raises(RunBusy):
                async with abreast.open_run("once", store=store, run_id=run.id):
                    pass
    assert begun(log) == dict.fromkeys(world.items, 1)


def _calm(count):
    return World((0,) * count, frozenset(), 2, 2, None, "collect", None)


@pytest.mark.usefixtures("unmeasured")
async def test_a_budget_is_never_passed_and_what_fits_fits_at_any_width(executor, store, tmp_path):
    world, log = _calm(4), tmp_path / "log"
    work = Logged(world, str(log))
    async with abreast.open_run("fits", store=store, executor=executor, budget="4req") as run:
        assert len(await run.map(work, world.items, width=4).values()) == 4
    log.unlink()
    with pytest.raises(BudgetSpent):
        async with abreast.open_run("not", store=store, executor=executor, budget="3req") as run:
            async for _ in run.map(work, world.items, width=4):
                pass
    assert sum(begun(log).values()) == 3


@pytest.mark.usefixtures("unmeasured")
async def test_nothing_is_left_after_a_cancellation(executor, store):
    before = asyncio.all_tasks()
    async with open_meeting() as meeting:

        async def drive():
            async with abreast.open_run("left", store=store, executor=executor) as run:
                await run.map(meet_later, map(meeting.ticket, range(4)), width=2).values()

        driving = asyncio.ensure_future(drive())
        await meeting.wait_for(2)
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set()
    assert not store.driven("left-1")

"""What happens to work when its agent or its node dies, and when the driver does."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

import abreast
from abreast.core.errors import TimedOut, WorkerDied
from abreast.executors.ray.executor import RayExecutor
from abreast.executors.ray.pool import PoolTimes
from abreast.testing import ManualClock
from tests.executors import work
from tests.executors.meeting import open_meeting
from tests.executors.ray.cluster import agent_of, no_work_left
from tests.executors.traces import wait_until_ended, wait_until_ended_beside, watch

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("unmeasured")]


def meet(ticket):
    work.meet(ticket)
    return abreast.current().attempt


async def meet_later(ticket):
    await work.meet_later(ticket)
    return abreast.current().attempt


def agents_of(meeting):
    """The process of each item's agent, by the item's name."""
    return {name: agent_of(pids[0]) for name, pids in meeting.came.items()}


async def wait_for_new(meeting, names):
    """Wait until these items have come again."""
    before = {name: meeting.came.pop(name) for name in names}
    async with asyncio.timeout(60):
        while not before.keys() <= meeting.came.keys():
            meeting._news.clear()
            await meeting._news.wait()
    return before


@pytest.mark.parametrize("how", ["cancelled", "timeout"])
async def test_work_that_is_cancelled_is_killed_with_its_children(ray_cluster, how):
    clock = ManualClock()
    async with (
        open_meeting() as meeting,
        abreast.open_run("nodes", executor="ray", clock=clock) as run,
    ):
        items = map(meeting.ticket, range(2))
        async with run.map(work.bring_a_child, items, width=2, timeout=5) as outcomes:
            await meeting.wait_for(2)
            with watch(*(pid for pids in meeting.came.values() for pid in pids)) as handles:
                if how == "timeout":
                    await clock.advance(5)
                    found = [outcome async for outcome in outcomes]
                    assert [type(outcome.error) for outcome in found] == [TimedOut, TimedOut]
                else:
                    await outcomes.__aexit__(None, None, None)
                assert await wait_until_ended_beside(handles) == set()


async def test_an_agent_that_is_killed_takes_its_work_along_and_that_is_done_again(ray_cluster):
    with no_work_left():
        async with open_meeting() as meeting, abreast.open_run("nodes", executor="ray") as run:
            async with run.map(meet, map(meeting.ticket, range(3)), width=3) as outcomes:
                await meeting.wait_for(3)
                with watch(meeting.came["1"][0]) as handles:
                    os.kill(agents_of(meeting)["1"], signal.SIGKILL)
                    assert await wait_until_ended_beside(handles) == set()
                await wait_for_new(meeting, ["1"])
                meeting.release_all()
                # It was no attempt: the work was not to blame.
                assert [outcome.value async for outcome in outcomes] == [1, 1, 1]


async def test_once_means_once_also_if_an_agent_is_killed(ray_cluster):
    async with open_meeting() as meeting, abreast.open_run("nodes", executor="ray") as run:
        items = map(meeting.ticket, range(2))
        async with run.map(meet, items, width=2, effect="once") as outcomes:
            await meeting.wait_for(2)
            os.kill(agents_of(meeting)["0"], signal.SIGKILL)
            meeting.release(1)
            lost, fine = [outcome async for outcome in outcomes]
    assert type(lost.error) is WorkerDied
    assert fine.value == 1


async def test_work_that_kills_every_agent_fails_in_the_end(ray_cluster):
    def kill_agent(_):
        os.kill(int(os.environ["ABREAST_AGENT"]), signal.SIGKILL)
        signal.pause()

    async with abreast.open_run("nodes", executor="ray") as run:
        (outcome,) = [one async for one in run.map(kill_agent, [0], width=1)]
    assert type(outcome.error) is WorkerDied
    assert "in the middle of it" in str(outcome.error)


@pytest.mark.parametrize("fn", [meet, meet_later])
async def test_the_work_of_a_node_that_dies_is_done_on_another(ray_cluster, fn):
    async with open_meeting() as meeting, abreast.open_run("nodes", executor="ray") as run:
        async with run.map(fn, map(meeting.ticket, range(20)), width=4, span=40) as outcomes:
            await meeting.wait_for(4)
            there = [name for name, agent in agents_of(meeting).items() if agent in ray_cluster]
            ray_cluster.second.kill()
            try:
                await wait_for_new(meeting, there)
                meeting.release_all()
                assert [outcome.value async for outcome in outcomes] == [1] * 20
            finally:
                await asyncio.to_thread(ray_cluster.replace_node)


async def test_an_agent_that_is_silent_is_given_up(ray_cluster):
    times = PoolTimes(heartbeat=0.2, silence=3.0, lease=2.0)
    executor = RayExecutor(times=times)
    async with open_meeting() as meeting, abreast.open_run("nodes", executor=executor) as run:
        async with run.map(meet, map(meeting.ticket, range(2)), width=2) as outcomes:
            await meeting.wait_for(2)
            stopped = agents_of(meeting)["0"]
            os.kill(stopped, signal.SIGSTOP)
            await wait_for_new(meeting, ["0"])
            meeting.release_all()
            assert [outcome.value async for outcome in outcomes] == [1, 1]


DRIVER = """
import sys, abreast
from tests.executors import work
items = [(int(sys.argv[1]), name) for name in range(2)]
for outcome in abreast.map(work.bring_a_child, items, width=2, executor="ray"):
    print(outcome)
"""


async def test_what_runs_on_nodes_ends_with_its_driver(ray_cluster):
    async with open_meeting() as meeting:
        command = [sys.executable, "-c", DRIVER, str(meeting.port)]
        driver = await asyncio.to_thread(subprocess.Popen, command)
        await meeting.wait_for(2)
        with watch(*(pid for pids in meeting.came.values() for pid in pids)) as handles:
            driver.kill()
            await asyncio.to_thread(driver.wait)
            assert await asyncio.to_thread(wait_until_ended, handles, 60) == set()

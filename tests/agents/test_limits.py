"""Usage limits of agents that are waited for, in virtual time."""

import asyncio

import pytest

import abreast
from abreast.agents.caller import AgentCaller
from abreast.agents.model import AgentModel, OneFolder
from abreast.core.errors import LaneParked
from abreast.executors.commands import Commands
from abreast.run.calls.lane import ModelLane
from abreast.testing import ManualClock
from tests.agents.stubs import stub_runner, write_stub

LIMITED = """
open("ran", "a").write(task + " ")
if task == "b" and not os.path.exists("limited"):
    open("limited", "w").write("x")
    say(kind="error", text={text!r})
else:
    end("did " + task, cost=0.25)
"""


async def work_through(folder, text, *, after=0.0, waits=True):
    """Give three tasks to an agent, of which the second meets a limit that ends `after` seconds."""
    clock, told, is_waiting = ManualClock(), [], asyncio.Event()
    runner = stub_runner(write_stub(folder, LIMITED.format(text=text)))
    async with Commands() as commands, abreast.open_run("r", clock=clock) as run:
        caller = AgentCaller(AgentModel(runner, commands, OneFolder(folder)), ModelLane("stub"))
        if waits:
            caller.wait_for_limits(lambda why: (told.append(why), is_waiting.set()))

        async def work(task):
            return (await caller.ask(task)).text

        done = asyncio.ensure_future(run.map(work, ["a", "b", "c"], width=1).values())
        waiting = asyncio.ensure_future(is_waiting.wait())
        await asyncio.wait({done, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not done.done():
            await clock.advance(after - 1)
            assert clock.next_due == after
            assert (folder / "ran").read_text().split() == ["a", "b"]
            await clock.advance(1)
        return await done, told


@pytest.mark.parametrize("text", ["usage limit reached", "429 slow down"])
async def test_a_limit_whose_end_is_known_is_waited_for_and_is_no_failure(tmp_path, text):
    text = f"{text}, try again in 2 hours"
    said, told = await work_through(tmp_path, text, after=7200.0)
    assert said == ["did a", "did b", "did c"]
    assert (tmp_path / "ran").read_text().split() == ["a", "b", "b", "c"]
    assert len(told) == 1
    assert "in 2.0 hours" in told[0]


async def test_a_limit_that_should_be_over_is_given_a_minute(tmp_path):
    said, _ = await work_through(tmp_path, "usage limit reached, again in 0 seconds", after=60.0)
    assert said == ["did a", "did b", "did c"]


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("usage limit reached, try again in 2 hours", False),
        ("usage limit reached", True),  # it does not say until when
    ],
)
async def test_otherwise_the_lane_is_parked(tmp_path, text, waits):
    with pytest.raises(LaneParked):
        await work_through(tmp_path, text, waits=waits)
    assert (tmp_path / "ran").read_text().split() == ["a", "b"]

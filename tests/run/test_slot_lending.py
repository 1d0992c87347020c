"""Slots that a waiting item lends come back once, to it, whatever ends in the same moment."""

import asyncio

import pytest

import abreast
from abreast.core.errors import ServerFault, Throttled
from abreast.core.outcome import Usage
from abreast.limits.gate import LimitGate
from abreast.limits.limit import Need, Ticket
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.run.slot_lending import wait_granted
from abreast.testing import ManualClock
from tests.turns import turns


class Flaky:
    """Fails once for each prompt, then answers."""

    name = "test/flaky"

    def __init__(self):
        self.asked = set()

    async def complete(self, request, hear=None):
        prompt = request.messages[-1].content
        if prompt not in self.asked:
            self.asked.add(prompt)
            raise ServerFault("once more")
        return Reply(prompt, usage=Usage(1, 1, 1))

    async def close(self):
        pass


def flaky():
    return Caller(Flaky(), ModelLane("model"), retry=abreast.Retry(1, base=0.0, cap=0.0))


async def test_an_item_that_is_cancelled_in_the_moment_its_slot_is_given_back_leaves_it_free():
    slots, model, tasks = abreast.Slots(1), flaky(), []

    async def work(item):
        if item == "lends":
            tasks.append(asyncio.current_task())
            await model.ask("x")  # fails once: while it backs off, the other has the slot
        else:
            await turns(50)
            tasks[0].cancel()
        return item  # in the same turn of the loop

    async with abreast.open_run("r", lanes={"lane": slots}) as run:
        items = ["lends", "ends it", "lends not"]
        outcomes = [outcome async for outcome in run.map(work, items, width=2, lane="lane")]
    assert [outcome.ok for outcome in outcomes] == [False, True, True]
    assert slots.taken == 0


async def test_a_call_that_its_item_left_behind_ends_with_it_and_takes_no_slot():
    slots, model, left = abreast.Slots(1), flaky(), []

    async def work(item):
        if item == "leaves":
            left.append(asyncio.ensure_future(model.ask("x")))
            await turns(50)  # its call has lent the slot, and wants it back
        else:
            await turns(200)
        return item

    async with abreast.open_run("r", lanes={"lane": slots}) as run:
        outcomes = [
            outcome async for outcome in run.map(work, ["leaves", "stays"], width=2, lane="lane")
        ]
        assert left[0].cancelled()
    assert [outcome.ok for outcome in outcomes] == [True, True]
    assert slots.taken == 0


class Throttles(Flaky):
    """Turns the first call away."""

    name = "test/throttles"

    async def complete(self, request, hear=None):
        if not self.asked:
            self.asked.add(request.messages[-1].content)
            raise Throttled("slow down", retry_after=0.001)
        await turns(5)
        return Reply(request.messages[-1].content, usage=Usage(1, 1, 1))


@pytest.mark.parametrize("late", [0, 10, 60, 90, 200])
async def test_calls_of_one_item_do_not_wait_for_the_slot_that_it_took_back(late):
    slots = abreast.Slots(1)
    model = Caller(Throttles(), ModelLane("lane"))

    async def later(prompt):
        await turns(late)
        return (await model.ask(prompt)).text

    async def work(item):
        if item == "asks":
            return [
                reply.text if isinstance(reply, Reply) else reply
                for reply in await asyncio.gather(model.ask("a"), later("b"), later("c"))
            ]
        await turns(50)
        return item

    async with abreast.open_run("r", lanes={"lane": slots}) as run:
        mapped = run.map(work, ["asks", "holds", "holds"], width=3, lane="lane")
        assert await asyncio.wait_for(mapped.values(), 60) == [["a", "b", "c"], "holds", "holds"]
    assert slots.taken == 0


@pytest.mark.parametrize("cancelled_first", [False, True])
async def test_a_wait_that_is_cancelled_as_it_is_granted_leaves_the_slot_free(cancelled_first):
    slots = abreast.Slots(1)
    gate = LimitGate(ManualClock())
    first, second = (Ticket([("lane", slots, Need())]) for _ in range(2))
    assert gate.ask(first)
    assert not gate.ask(second)
    waiting = asyncio.create_task(wait_granted(gate, second))
    await turns(2)
    steps = [waiting.cancel, lambda: gate.give(first.holds)]
    for step in steps if cancelled_first else reversed(steps):
        step()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert slots.taken == 0
    assert gate.ask(Ticket([("lane", slots, Need())]))  # and nothing is left in line before it

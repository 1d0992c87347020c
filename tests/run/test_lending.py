"""Slots that an item lends while it waits come back once, to whom they belong, whatever ends in the same moment."""

import asyncio

import abreast
from abreast.core.errors import ServerFault
from abreast.core.outcome import Usage
from abreast.models.port import Reply
from abreast.run.call import Caller
from abreast.run.lane import Lane


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
    return Caller(Flaky(), Lane("model"), retry=abreast.Retry(1, base=0.0, cap=0.0))


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


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


async def test_a_call_that_its_item_left_behind_takes_no_slot():
    slots, model, left = abreast.Slots(1), flaky(), []

    async def work(item):
        if item == "leaves":
            left.append(asyncio.ensure_future(model.ask("x")))
            await turns(50)  # its call has lent the slot, and wants it back
        else:
            await turns(200)
        return item

    async with abreast.open_run("r", lanes={"lane": slots}) as run:
        outcomes = [outcome async for outcome in run.map(work, ["leaves", "stays"], width=2, lane="lane")]
        assert (await left[0]).text == "x"
    assert [outcome.ok for outcome in outcomes] == [True, True]
    assert slots.taken == 0

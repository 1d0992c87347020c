"""First calls: one goes alone, and those behind it wait before their lane admits them."""

import asyncio

import abreast
from abreast.limits.slots import Slots
from abreast.models.providers.accepted_form import AcceptedForm
from abreast.models.providers.first_calls import FirstCalls, FirstTurn
from abreast.models.providers.openai import OpenAI
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from tests.models.serving import KEY, Recorded, serving
from tests.turns import turns

BODY = {"model": "x", "temperature": 0}
REFUSAL = {"message": "Unsupported parameter: 'temperature'.", "param": "temperature"}
NO_TEMPERATURE = Recorded({"error": REFUSAL}, status=400)
HI = Recorded({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})


def body():
    return BODY


async def test_a_call_that_takes_long_is_not_waited_for():
    form = AcceptedForm()
    calls = FirstCalls(form.knows, form.accept, seconds=0.0)
    _, alone = await calls.wait(body)
    assert alone is not None
    assert await calls.wait(body) == (BODY, None)
    assert form.knows(BODY)
    calls.end(alone)


async def test_a_call_that_ends_unanswered_lets_the_next_go():
    calls = AcceptedForm().first_calls
    _, alone = await calls.wait(body)
    next_one = asyncio.ensure_future(calls.wait(body))
    await turns()
    assert alone is not None
    assert not next_one.done()
    calls.end(alone)
    _, mine = await next_one
    assert mine is not None


async def test_a_claim_that_is_not_sent_is_waited_for_however_long_and_left_to_the_next():
    calls = FirstCalls(AcceptedForm().knows, AcceptedForm().accept, seconds=0.0)
    async with FirstTurn(calls, body) as _:
        second = FirstTurn(calls, body)
        assert second.waits
        waiting = asyncio.ensure_future(second.__aenter__())
        await turns()
        assert not waiting.done()
    await waiting
    assert calls.is_claimed
    await second.__aexit__()
    assert not calls.is_claimed


async def test_a_claim_that_is_not_sent_is_taken_over_by_a_call_that_is_admitted():
    calls = AcceptedForm().first_calls
    async with FirstTurn(calls, body):
        _, alone = await calls.wait(body)
        assert alone is not None
    assert calls.is_claimed  # by the one that was sent
    calls.end(alone)


# --- through a lane


class Watched:
    """A model that notes how many places of its lane are taken when a reply is there."""

    name = "x/y"

    def __init__(self, model, slots):
        self.model, self.slots, self.taken = model, slots, []

    def first_turn(self, request, *, stream):
        return self.model.first_turn(request, stream=stream)

    async def complete(self, request, hear=None):
        reply = await self.model.complete(request, hear)
        self.taken.append(self.slots.taken)
        return reply

    async def close(self):
        await self.model.close()


async def test_calls_that_wait_for_the_first_one_hold_no_place_in_the_lane():
    slots = Slots(8)
    async with serving(NO_TEMPERATURE, HI) as server:
        watched = Watched(OpenAI("x/y", server.url, KEY), slots)
        async with Caller(watched, ModelLane("x", [slots])) as model:
            asks = (model.ask(f"{n}", temperature=0.0) for n in range(8))
            replies = await asyncio.gather(*asks)
    assert [reply.changed for reply in replies] == [("without temperature",)] * 8
    assert len(server.bodies) == 9
    assert watched.taken[0] == 1
    assert slots.peak > 1


async def test_an_item_lends_its_slot_while_it_waits_for_the_call_that_goes_first():
    """Else the two would wait for each other, where the lane has one place."""
    slots = Slots(1)
    async with serving(HI) as server:
        provider = OpenAI("x/y", server.url, KEY)
        async with Caller(provider, ModelLane("x", [slots])) as model:
            first = FirstTurn(provider.form.first_calls, body)
            await first.__aenter__()

            started = asyncio.Event()

            async def item(text):
                started.set()
                return (await model.ask(text)).text

            async def mapped():
                async with abreast.open_run("lending", lanes={"x": [slots]}) as run:
                    return [
                        outcome.value async for outcome in run.map(item, ["a"], width=1, lane="x")
                    ]

            values = asyncio.ensure_future(mapped())
            await started.wait()
            await turns()
            assert (slots.peak, slots.taken) == (1, 0)
            await first.__aexit__()
            assert await values == ["Hi"]


async def test_a_call_that_is_cancelled_before_its_turn_leaves_it_to_others():
    async with serving(HI) as server:
        provider = OpenAI("x/y", server.url, KEY)
        async with Caller(provider, ModelLane("x")) as model:
            first = FirstTurn(provider.form.first_calls, body)
            await first.__aenter__()
            second = asyncio.ensure_future(model.ask("b"))
            third = asyncio.ensure_future(model.ask("c"))
            await turns()
            second.cancel()
            await first.__aexit__()
            assert (await third).text == "Hi"
    assert len(server.bodies) == 1

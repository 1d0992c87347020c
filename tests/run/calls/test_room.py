"""A call whose thinking used up its tokens before any text is made again, once, with more room."""

import pytest

import abreast
from abreast.core.errors import BudgetSpent, ReplyBroken
from abreast.core.outcome import Usage
from abreast.limits.budget import Budget
from abreast.models.port import Message, Reply, Request
from abreast.models.price import FlatPrice
from abreast.models.providers.openai import OpenAI
from abreast.run.calls.journal import digest_of
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import MemoryStore
from tests.models.serving import KEY, Recorded, closing, serving


class Thinks:
    """Thinks for so many tokens before it says anything."""

    name = "test/thinks"

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.asked: list[int | None] = []

    async def complete(self, request: Request, hear: object = None) -> Reply:
        self.asked.append(request.max_tokens)
        room = request.max_tokens or 10_000
        if room > self.tokens:
            return Reply("yes", usage=Usage(1, 10, self.tokens + 1))
        error = ReplyBroken("it sent an empty reply: max_tokens were used up before any text")
        error.wants_room, error.usage = True, Usage(1, 10, room)
        raise error

    async def close(self) -> None: ...


def caller(model: Thinks) -> Caller:
    return Caller(model, ModelLane("test"), price=FlatPrice(0.0, 1.0))


async def test_it_is_asked_again_with_more_room_and_both_calls_are_paid() -> None:
    thinks, store = Thinks(500), MemoryStore()
    async with abreast.open_run("r", store=store, budget=Budget(usd=1.0)) as run:
        [outcome] = [o async for o in run.map(_ask(caller(thinks)), ["x"], width=1)]
        assert run.budget.spent["usd"] == pytest.approx((8 + 501) / 1e6)
    assert outcome.value == "yes"
    assert outcome.usage.output_tokens == 8 + 501
    assert thinks.asked == [8, 8 * 4 + 4096]
    # It is recorded as the request that was asked: a resumed run finds it.
    [settled] = store.events("r-1", kinds={"call-settled"})
    asked = Request((Message("user", "x"),), max_tokens=8)
    assert f"/call/{digest_of(thinks.name, asked)}-0" in settled.path


async def test_it_is_asked_again_once_only() -> None:
    thinks = Thinks(1_000_000)
    with pytest.raises(ReplyBroken, match="used up before any text"):
        await caller(thinks).ask("x", max_tokens=8)
    assert len(thinks.asked) == 2


async def test_the_room_for_it_has_to_be_in_the_budget() -> None:
    thinks, store = Thinks(500), MemoryStore()
    with pytest.raises(BudgetSpent):
        async with abreast.open_run("r", store=store, budget=Budget(usd=1e-4)) as run:
            async for _ in run.map(_ask(caller(thinks)), ["x"], width=1):
                pass
    assert thinks.asked == [8]
    [settled] = store.events("r-1", kinds={"call-settled"})
    assert (settled.data["state"], settled.data["output_tokens"]) == ("cancelled", 8)


async def test_a_provider_tells_that_tokens_were_used_up_by_thinking() -> None:
    message = {"role": "assistant", "content": ""}
    empty = {"choices": [{"index": 0, "message": message, "finish_reason": "length"}]}
    async with serving(Recorded(empty)) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            with pytest.raises(ReplyBroken, match="max_tokens were used up") as caught:
                await model.complete(Request((Message("user", "Hello"),), max_tokens=8))
    assert caught.value.wants_room


def _ask(model: Caller):
    async def ask(item: str) -> str:
        return (await model.ask(item, max_tokens=8)).text

    return ask

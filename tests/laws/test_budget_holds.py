"""A budget is never passed, whatever replies, faults, cancellations and retries do."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.core.errors import BudgetSpent, ConnectionLost, ReplyBroken, RequestRefused
from abreast.core.outcome import NO_USAGE, Usage
from abreast.models.estimate import REPLY_CAP, UNBOUNDED_REPLY, most_tokens
from abreast.models.port import Message, Reply, Request
from abreast.models.price import FlatPrice
from abreast.models.providers.openai import OpenAI
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from benchmarks.budgets import spend
from tests.models.serving import KEY, Recorded, serving
from tests.properties import tried


@tried(60, deadline=None)
@given(st.integers(1, 1_000_000))
async def test_no_budget_is_passed(seed):
    spent = await spend(seed)
    assert not spent.passed, spent


async def test_budgets_are_used_too():
    shares = []
    for seed in range(1, 21):
        spent = await spend(seed)
        shares.append(max(spent.charged[name] / cap for name, cap in spent.caps.items()))
    assert max(shares) > 0.8


# --- what is reserved and booked


class Cut:
    """A model that streams a text and then waits, with `usage` in its reply if it goes on."""

    name = "test/cut"

    def __init__(self, text="", usage=NO_USAGE, error=None):
        self.sent, self.heard = [], asyncio.Event()
        self._text, self._usage, self._error = text, usage, error

    async def complete(self, request, hear=None):
        self.sent.append(request)
        if hear is not None and self._text:
            hear(self._text)
        self.heard.set()
        if self._error is not None:
            raise self._error
        if self._usage is None:
            await asyncio.Event().wait()
        return Reply(self._text or "ok", usage=self._usage)

    async def close(self):
        pass


PRICE = FlatPrice(1.0, 10.0, cache_write=1.25)


async def charged(model, request, hear=None, *, cancel=False, budget=None):
    """What one call takes of a budget."""
    budget = budget or abreast.Budget(usd=100.0)
    caller = Caller(model, ModelLane("test"), price=PRICE, retry=None)

    async def work(_):
        call = asyncio.ensure_future(caller.complete(request, hear))
        await model.heard.wait()
        if cancel:
            call.cancel()
        await asyncio.wait([call])

    async with abreast.open_run("r", budget=budget) as run:
        (outcome,) = [outcome async for outcome in run.map(work, [0], width=1)]
    assert all(abs(amount) < 1e-12 for amount in budget.reserved.values())
    return budget.spent, outcome.usage


def asking(**more):
    return Request((Message("user", "Größe?"),), **more)


async def test_a_request_without_a_bound_gets_the_cap_that_is_reserved_for_it():
    model = Cut(usage=Usage(1, 3, 5))
    await charged(model, asking())
    assert [request.max_tokens for request in model.sent] == [REPLY_CAP]
    model = Cut(usage=Usage(1, 3, 5))
    await charged(model, asking(max_tokens=7))
    assert [request.max_tokens for request in model.sent] == [7]
    model = Cut(usage=Usage(1, 3, 5))
    await charged(model, asking(), budget=abreast.Budget(requests=5))
    assert [request.max_tokens for request in model.sent] == [None]


def test_the_most_that_a_call_can_take_counts_bytes_thinking_tools_and_further_replies():
    plain = most_tokens(asking(max_tokens=10))
    assert plain.input_tokens >= len("Größe?".encode())
    assert plain.output_tokens == 10
    assert most_tokens(asking(max_tokens=10, thinking_tokens=90)).output_tokens == 100
    assert most_tokens(asking(max_tokens=10, extra={"n": 3})).output_tokens == 30
    assert most_tokens(asking(extra={"max_completion_tokens": 9000})).output_tokens == 9000
    tools = ({"name": "t", "description": "x" * 5000, "parameters": {}},)
    for more in (
        {"tools": tools},
        {"schema": {"enum": ["x" * 5000]}},
        {"system": "x" * 5000},
    ):
        assert most_tokens(asking(**more)).input_tokens >= plain.input_tokens + 5000


def test_the_dearest_price_of_input_is_reserved():
    assert PRICE.most(1_000_000, 0) == 1.25
    assert FlatPrice(1.0, 10.0).most(1_000_000, 1_000_000) == 11.0


async def test_a_cancelled_call_is_booked_as_an_estimate_by_what_had_streamed():
    input_bytes = most_tokens(asking()).input_tokens
    spent, usage = await charged(Cut("a" * 40, None), asking(), print, cancel=True)
    assert usage.estimate
    assert (usage.input_tokens, usage.output_tokens) == (input_bytes, 56)
    assert spent["usd"] == pytest.approx((input_bytes * 1.25 + 56 * 10) / 1e6)
    _, usage = await charged(Cut("", None), asking(max_tokens=900), print, cancel=True)
    assert usage.output_tokens == 900  # nothing had come: it may have thought, or not streamed


@pytest.mark.parametrize("more", [{"reasoning": "low"}, {"thinking_tokens": 1000}])
async def test_thinking_is_not_seen_in_a_stream_so_all_of_it_is_booked(more):
    request = asking(max_tokens=900, **more)
    _, usage = await charged(Cut("a" * 40, None), request, print, cancel=True)
    assert usage.output_tokens == most_tokens(request).output_tokens


async def test_what_may_have_been_paid_for_is_booked_and_what_was_not_is_free():
    unsent = ConnectionLost("refused")
    unsent.unsent = True
    most = most_tokens(asking())
    for error, tokens in (
        (ConnectionLost("lost"), sum(most)),
        (ReplyBroken("no JSON", status=200), sum(most)),
        (unsent, 0),
        (RequestRefused("no", status=400), 0),
    ):
        spent, usage = await charged(Cut(error=error), asking())
        assert (spent["tokens"], usage.estimate) == (tokens, tokens > 0)
        assert spent["requests"] == 1


# --- a model that refuses max_tokens


def refusal(name):
    error = {"message": f"Unsupported parameter: '{name}'.", "param": name}
    return Recorded({"error": error}, status=400)


LONG_REPLY = Recorded(
    {
        "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 90_000},
    }
)
REFUSALS = (refusal("max_completion_tokens"), refusal("max_tokens"))


async def ask_unbounded(budget):
    """Two calls, one after the other, to a model that refuses both names of the bound."""
    async with serving(*REFUSALS, LONG_REPLY) as server:
        provider = OpenAI("test/free", server.url, KEY)
        async with Caller(provider, ModelLane("test"), price=PRICE, retry=None) as model:

            async def work(_):
                return await model.ask("Hi", max_tokens=10)

            async with abreast.open_run("r", budget=budget) as run:
                outcomes = [outcome async for outcome in run.map(work, [0, 1], width=1)]
    return server.bodies, outcomes


async def test_without_a_bound_the_longest_reply_is_reserved_before_it_is_sent():
    budget = abreast.Budget(tokens=UNBOUNDED_REPLY + 2000)
    with pytest.raises(BudgetSpent):
        await ask_unbounded(budget)
    assert budget.spent["tokens"] == 90_005
    budget = abreast.Budget(tokens=UNBOUNDED_REPLY - 1)
    with pytest.raises(BudgetSpent):
        await ask_unbounded(budget)
    assert budget.spent["tokens"] == 0


async def test_a_refused_bound_is_learned_once_and_the_call_made_without_it():
    bodies, outcomes = await ask_unbounded(abreast.Budget(tokens=1_000_000))
    bounds = [name for body in bodies for name in body if "max" in name]
    assert bounds == ["max_completion_tokens", "max_tokens"]
    assert [outcome.value.text for outcome in outcomes] == ["Hi", "Hi"]
    assert [outcome.usage.requests for outcome in outcomes] == [1, 1]

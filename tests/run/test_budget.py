"""Law 7: spent + reserved stays within the cap; a run that fits at width 1 fits at any."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.core.errors import BudgetSpent, StoreFull
from abreast.core.outcome import Usage
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.dying import Dying
from tests.properties import tried


@tried(60)
@given(
    cap=st.integers(1, 12),
    count=st.integers(0, 12),
    width=st.integers(1, 8),
    turns=st.integers(0, 4),
)
def test_exactly_the_budget_is_started_and_the_outcomes_before_it_come_out(
    cap, count, width, turns
):
    ran = []

    async def work(item):
        ran.append(item)
        for _ in range(turns):
            await asyncio.sleep(0)
        return item

    async def main():
        seen, spent = [], False
        async with abreast.open_run("b", budget=abreast.Budget(requests=cap)) as run:
            mapped = run.map(work, range(count), width=width)
            try:
                async for outcome in mapped:
                    seen.append(outcome.value)
            except BudgetSpent:
                spent = True
        return seen, spent, mapped.timing_dependent

    seen, spent, why = asyncio.run(main())
    assert sorted(ran) == seen == list(range(min(cap, count)))
    assert spent == (count > cap)
    assert why == ({"budget"} if spent else frozenset())


async def test_retries_are_charged_too():
    tried = []

    async def work(item):
        tried.append(item)
        raise ConnectionError(item)

    async with abreast.open_run("b", budget=abreast.Budget(requests=3)) as run:
        with pytest.raises(BudgetSpent, match="3 of 3 requests used"):
            await run.map(work, [0, 1], width=1, retry=abreast.Retry(5, base=0, cap=0)).values()
    assert len(tried) == 3


async def test_what_is_in_flight_when_the_budget_is_spent_is_let_finish_and_recorded():
    gate, store = Gate(), MemoryStore()

    async def work(item):
        await gate.pass_(item)
        return item

    async def first():
        async with abreast.open_run("b", store=store, budget=abreast.Budget(requests=2)) as run:
            return await run.map(work, range(4), width=4).values()

    waiting = asyncio.ensure_future(first())
    await gate.wait_for(0, 1)
    gate.open_all()
    with pytest.raises(BudgetSpent):
        await waiting
    assert store.get("b-1").state == "spent"
    assert store.get("b-1").spent["requests"] == 2
    async with abreast.open_run("b", store=store, budget=abreast.Budget(requests=4)) as run:
        assert run.resumed
        assert await run.map(work, range(4), width=4).values() == [0, 1, 2, 3]
    assert sorted(gate.arrived) == [0, 1, 2, 3]


async def test_a_resumed_run_counts_what_was_spent_before():
    store = MemoryStore()

    async def work(item):
        return item

    for _ in range(2):
        with pytest.raises(BudgetSpent):
            async with abreast.open_run("b", store=store, budget="2req") as run:
                await run.map(work, range(4), width=1).values()
    assert store.get("b-1").spent["requests"] == 2


async def test_the_first_call_beneath_an_item_is_the_one_it_was_charged_for():
    async def call(item):
        return item

    async def item(number):
        run = abreast.current().run
        await run.step("first", call, 1)
        return await run.step("second", call, 2)

    budget = abreast.Budget(requests=4)
    async with abreast.open_run("b", budget=budget) as run:
        assert await run.map(item, range(2), width=1).values() == [2, 2]
    assert budget.spent["requests"] == 4


async def test_a_budget_of_time_stops_what_runs_and_says_so():
    clock, gate = ManualClock(), Gate()

    async def work(item):
        await gate.pass_(item)

    async def main():
        async with abreast.open_run("b", clock=clock, budget="10min") as run:
            await run.map(work, range(3), width=1).values()

    waiting = asyncio.ensure_future(main())
    await gate.wait_for(0)
    await clock.advance(599)
    assert not waiting.done()
    await clock.advance(1)
    with pytest.raises(BudgetSpent, match="600 seconds is spent"):
        await waiting
    assert gate.arrived == [0]


async def test_a_childs_budget_holds_beside_its_parents():
    async def work(item):
        return item

    async with abreast.open_run("b", budget="10req") as run:
        async with run.child("small", budget="2req") as child:
            with pytest.raises(BudgetSpent):
                await child.map(work, range(5), width=2).values()
        assert len(await run.map(work, range(5), width=2).values()) == 5
        assert run.budget.spent["requests"] == 7


async def test_what_was_spent_is_still_known_after_a_driver_without_a_budget():
    store = MemoryStore()

    async def drive(items, budget, resume):
        async with abreast.open_run("r", store=store, budget=budget, resume=resume) as run:
            return [
                outcome
                async for outcome in run.map(lambda item: item, range(items), width=1, name="m")
            ]

    await drive(3, abreast.Budget(requests=10), "never")
    await drive(5, None, "retry")
    last = abreast.Budget(requests=10)
    await drive(6, last, "retry")
    assert last.spent["requests"] == 4  # three of the first driver, one of the last


class Echo:
    """A model that says what it was asked, and counts."""

    name = "test/echo"

    def __init__(self):
        self.sent = 0

    async def complete(self, request, hear=None):
        self.sent += 1
        return Reply(request.messages[-1].content, usage=Usage(1, 1, 1))

    async def close(self):
        pass


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("commits", range(1, 9))
async def test_a_request_that_was_recorded_before_a_crash_is_charged_once(calls, nested, commits):
    store, echo = MemoryStore(), Echo()
    model = Caller(echo, ModelLane("test"))

    async def ask(text):
        return (await model.ask(text)).text

    async def work(item):
        run = abreast.current().run
        asked = [f"{item} {number}" for number in range(calls)]
        return [await (run.step(text, ask, text) if nested else ask(text)) for text in asked]

    async def go(store, requests):
        async with abreast.open_run(
            "b", store=store, budget=abreast.Budget(requests=requests)
        ) as run:
            return await run.map(work, range(2), width=1).values()

    try:
        await go(Dying(store, commits), 2 * calls)
    except StoreFull:
        recorded = len(store.events("b-1", kinds={"call-settled"}))
        lost = echo.sent - recorded  # sent, and not recorded: asked and charged again
        assert len(await go(store, 2 * calls + lost)) == 2
        assert echo.sent == 2 * calls + lost
        assert store.get("b-1").spent["requests"] <= echo.sent

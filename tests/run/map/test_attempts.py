"""Attempts: maps beneath an item belong to its attempt; what they recorded is not repeated."""

from collections import Counter

import pytest

import abreast
from abreast.core.errors import KeyReused
from abreast.core.outcome import Done, Failed, Usage
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import MemoryStore

AT_ONCE = abreast.Retry(2, fixed=0.0)


class Echo:
    """A model that answers with the prompt, and fails the first calls."""

    name = "test/echo"

    def __init__(self, fails=0):
        self.asked = []
        self.fails = fails

    async def complete(self, request, hear=None):
        self.asked.append(request.messages[-1].content)
        if len(self.asked) <= self.fails:
            raise ConnectionError("lost")
        return Reply(self.asked[-1].upper(), usage=Usage(1, 10, 5))

    async def close(self):
        """Nothing is open."""


class Nested:
    """An item with two steps and a map beneath it; its last step fails in the first attempt."""

    def __init__(self, failures=1):
        self.ran = Counter()
        self.failures = failures

    async def work(self, number):
        scope = abreast.current().run
        first = await scope.step("first", self.count("first", lambda value: value + 1), number)
        squares = await scope.map(
            self.count("square", lambda value: value * value), [1, 2], width=2
        ).values()
        async with scope.child("inner") as inner:
            last = await inner.step("last", self.count("last", self._last), first)
        return [first, squares, last]

    def count(self, name, function):
        async def call(value):
            self.ran[name] += 1
            return function(value)

        return call

    def _last(self, value):
        if self.ran["last"] <= self.failures:
            raise ConnectionError("lost")
        return value * 10


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")
    yield store
    store.close()


async def outcomes(work, items=(1,), *, store=None, retry=AT_ONCE, **options):
    async with abreast.open_run("attempts", store=store, **options) as run:
        return [
            outcome async for outcome in run.map(work, items, width=2, name="items", retry=retry)
        ]


async def test_without_a_store_a_further_attempt_opens_its_steps_and_maps_anew():
    nested = Nested()
    [outcome] = await outcomes(nested.work)
    assert outcome.ok
    assert outcome.value == [2, [1, 4], 20]
    assert nested.ran == {"first": 2, "square": 4, "last": 2}


async def test_with_a_store_a_further_attempt_runs_only_what_is_not_recorded_as_done(store):
    nested = Nested()
    [outcome] = await outcomes(nested.work, store=store)
    assert outcome.value == [2, [1, 4], 20]
    assert nested.ran == {"first": 1, "square": 2, "last": 2}
    recorded = {one.path: one.data["state"] for one in store.outcomes("attempts-1")}
    assert set(recorded.values()) == {"done"}
    assert "attempts/items/0000/inner/last" in recorded


async def test_a_further_attempt_may_use_names_of_an_outer_run_again(store):
    ran = Counter()

    async def fetch(value):
        ran["fetch", value] += 1
        return value

    async def parse(value):
        ran["parse", value] += 1
        if ran["parse", value] == 1:
            raise ConnectionError("lost")
        return value

    async with abreast.open_run("outer", store=store) as run:

        async def work(value):
            return await run.step(
                f"parse-{value}", parse, await run.step(f"fetch-{value}", fetch, value)
            )

        found = [outcome.value async for outcome in run.map(work, [1, 2], width=2, retry=AT_ONCE)]
    assert found == [1, 2]
    assert ran == {("fetch", 1): 1, ("fetch", 2): 1, ("parse", 1): 2, ("parse", 2): 2}


async def test_two_steps_of_one_name_in_one_attempt_are_still_refused(store):
    async def work(value):
        scope = abreast.current().run
        await scope.step("same", abs, value)
        await scope.step("same", abs, value)

    [outcome] = await outcomes(work, store=store)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, KeyReused)


async def test_two_items_can_not_take_one_name_of_the_run_around_them_by_retrying():
    async with abreast.open_run("outer") as run:
        tries = Counter()

        async def work(value):
            tries[value] += 1
            if tries[value] == 1 and value == 2:
                raise ConnectionError("lost")
            return await run.step("same", abs, value)

        found = [outcome async for outcome in run.map(work, [1, 2], width=1, retry=AT_ONCE)]
    assert [type(outcome) for outcome in found] == [Done, Failed]
    assert isinstance(found[1].error, KeyReused)


async def test_a_step_beneath_a_step_is_repeated_with_the_item_around_both(store):
    ran = Counter()

    async def inner(value):
        ran["inner"] += 1
        return value

    async def outer(value):
        ran["outer"] += 1
        found = await abreast.current().run.step("inner", inner, value)
        if ran["outer"] == 1:
            raise ConnectionError("lost")
        return found

    async def work(value):
        return await abreast.current().run.step("outer", outer, value)

    [outcome] = await outcomes(work, store=store)
    assert outcome.value == 1
    assert ran == {"outer": 2, "inner": 1}


async def test_a_step_that_gets_another_value_in_a_further_attempt_runs_with_it(store):
    async def double(value):
        return value * 2

    async def work(_):
        item = abreast.current()
        found = await item.run.step("double", double, item.attempt)
        if item.attempt == 1:
            raise ConnectionError("lost")
        return found

    [outcome] = await outcomes(work, store=store)
    assert outcome.value == 4


async def test_what_a_recorded_step_used_is_counted_once_for_its_item(store):
    model = Echo()
    asking = Caller(model, ModelLane("test", ()))

    async def ask(text):
        return (await asking.ask(text)).text

    async def work(text):
        item = abreast.current()
        answer = await item.run.step("ask", ask, text)
        if item.attempt == 1:
            raise ConnectionError("lost")
        return answer

    [outcome] = await outcomes(work, ["hello"], store=store)
    assert outcome.value == "HELLO"
    assert model.asked == ["hello"]
    assert outcome.usage.requests == 1


async def test_a_step_whose_call_failed_asks_again_in_a_further_attempt(store):
    model = Echo(fails=1)
    asking = Caller(model, ModelLane("test", ()), retry=None)

    async def ask(text):
        return (await asking.ask(text)).text

    async def work(text):
        return await abreast.current().run.step("ask", ask, text)

    [outcome] = await outcomes(work, ["hello"], store=store)
    assert outcome.ok, outcome
    assert outcome.value == "HELLO"
    assert model.asked == ["hello", "hello"]


async def test_a_resumed_run_has_the_steps_of_both_attempts(store):
    first = Nested(failures=5)
    [outcome] = await outcomes(first.work, store=store)
    assert isinstance(outcome, Failed)
    assert first.ran == {"first": 1, "square": 2, "last": 3}
    again = Nested(failures=0)
    [outcome] = await outcomes(again.work, store=store, resume="failed")
    assert outcome.value == [2, [1, 4], 20]
    assert again.ran == {"last": 1}


async def test_a_lane_that_an_attempt_declares_is_gone_with_it():
    seen = []

    async def work(value):
        scope = abreast.current().run
        seen.append("own" in scope.lanes.names)
        scope.declare("own", abreast.Slots(1))
        if len(seen) == 1:
            raise ConnectionError("lost")
        return await scope.step("step", abs, value, lane="own")

    [outcome] = await outcomes(work)
    assert outcome.value == 1
    assert seen == [False, False]

"""The usage of a sample: the same with any delays and after a kill; speculative draws apart."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.core.errors import ServerFault, StoreFull
from abreast.core.outcome import NO_USAGE, Usage
from abreast.jobs.sample.draw_context import current_draw
from abreast.jobs.sample.strategies import Repair
from abreast.models.port import Reply
from abreast.models.price import FlatPrice
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate, MemoryStore
from tests.dying import Dying
from tests.jobs.sample.drawing import PASS, Table, at, passes
from tests.properties import tried

RETRY = abreast.Retry(2, base=0.0, cap=0.0)
PRICE = FlatPrice(0.3, 0.7)


class Timed:
    """Answers by (branch, round) after some turns of the loop, perhaps first with a fault."""

    name = "test/timed"

    def __init__(self, good, turns, faults):
        self.good, self.turns, self.faults = good, turns, faults
        self.sent = {}

    async def complete(self, request, hear=None):
        here = current_draw()
        place = (here.round, here.branch)
        self.sent[place] = self.sent.get(place, 0) + 1
        for _ in range(self.turns[here.number % len(self.turns)]):
            await asyncio.sleep(0)
        if place in self.faults and self.sent[place] == 1:
            raise ServerFault("not now", status=500)
        said = PASS if place in self.good else "bad"
        return Reply(f"{said} {place}", usage=self.used(place), seconds=0.1)

    def used(self, place):
        return Usage(1, 10 + place[0], 5 + place[1], PRICE.of(10 + place[0], 5 + place[1]))

    def serial(self, breadth, depth):
        """The usage of sequential draws, round by round, until one passes."""
        total = NO_USAGE
        for place in ((number, branch) for number in range(depth) for branch in range(breadth)):
            total += self.used(place)
            if place in self.faults:
                total += Usage(1)
            if place in self.good:
                break
        return total


async def sampled(table, breadth, depth, store):
    """Run a sample within an item; return the item's usage, and that of draws up to the winner."""
    model = Caller(table, ModelLane("test"), retry=RETRY, price=PRICE)

    async def one(_):
        result = await abreast.sample(
            "Say.",
            model=model,
            checks=[passes],
            breadth=breadth,
            depth=depth,
            strategy=Repair(),
            run=abreast.current().run,
        )
        last = (result.winner.round, result.winner.branch) if result.ok else (depth, 0)
        counted = [
            attempt for attempt in result.attempts if (attempt.round, attempt.branch) <= last
        ]
        return [[attempt.branch, attempt.round, attempt.text, attempt.usage] for attempt in counted]

    async with abreast.open_run("r", store=store, seed=3) as run:
        [outcome] = [outcome async for outcome in run.map(one, [0], width=1)]
    return outcome.value, outcome.usage


async def after_crashes(fresh, breadth, depth, commits):
    store = MemoryStore()
    for count in commits:
        try:
            return await sampled(fresh(), breadth, depth, Dying(store, count))
        except StoreFull:
            continue
    return await sampled(fresh(), breadth, depth, store)


PLACES = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=3)


@tried(60)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    PLACES,
    PLACES,
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.lists(st.integers(1, 12), max_size=3),
)
def test_a_sample_used_what_one_draw_after_the_other_uses_whatever_the_delays_and_kills(
    shape, good, faults, turns, commits
):
    attempts, used = asyncio.run(after_crashes(lambda: Timed(good, turns, faults), *shape, commits))
    assert used == Timed(good, turns, faults).serial(*shape)
    assert (attempts, used) == asyncio.run(sampled(Timed(good, [0], faults), *shape, MemoryStore()))


async def test_draws_past_the_winner_are_in_a_total_of_their_own():
    gate = Gate()

    def says(branch, number):
        async def later():
            if branch == 0:
                await gate.wait_for(1)
            else:
                await gate.pass_(branch)
            return f"{PASS} {branch}"

        return later()

    async def one(_):
        model = Caller(Table(says), ModelLane("test"), paid=False)
        return await abreast.sample(
            "Say.", model=model, checks=[passes], breadth=2, run=abreast.current().run
        )

    async with abreast.open_run("r") as run:
        [outcome] = [outcome async for outcome in run.map(one, [0], width=1)]
    result = outcome.value
    assert result.winner.branch == 0
    assert (result.usage.requests, result.speculative.requests) == (2, 1)
    assert result.speculative.estimate
    assert outcome.usage == Usage(1, 10, 5, None)


@pytest.mark.parametrize("commits", range(1, 12))
async def test_a_result_after_a_kill_at_any_boundary_tells_what_an_undisturbed_one_tells(commits):
    async def go(store):
        model = Caller(Table(at((0, 2))), ModelLane("test"))
        async with abreast.open_run("r", store=store, seed=1) as run:
            result = await abreast.sample("Say.", model=model, checks=[passes], depth=4, run=run)
        return (
            [attempt.usage for attempt in result.attempts],
            result.usage,
            result.speculative,
            result.counts,
        )

    store = MemoryStore()
    try:
        found = await go(Dying(store, commits))
    except StoreFull:
        found = await go(store)
    assert found == await go(MemoryStore())
    assert found[1] == Usage(3, 30, 15, None)

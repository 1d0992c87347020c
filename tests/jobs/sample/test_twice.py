"""The same sample with its replies in every order has the same winner."""

import asyncio
from itertools import permutations

import pytest

import abreast
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate
from tests.jobs.sample.drawing import Table, at, passes

BREADTH = 3


async def drawn_in_order(order, good, pick):
    """Run a sample; first draws are answered in that order, each checked before the next reply."""
    gate = Gate()

    async def later(branch, number):
        await gate.pass_((branch, number))
        return at(*good)(branch, number)

    table = Table(later)
    model = Caller(table, ModelLane("test", ()), retry=abreast.Retry(0), paid=False)
    done = asyncio.ensure_future(
        abreast.sample("Say.", model=model, checks=[passes], breadth=BREADTH, depth=2, pick=pick)
    )
    await gate.wait_for(*((branch, 0) for branch in range(BREADTH)))
    for branch in order:
        gate.open((branch, 0))
        for _ in range(50):
            await asyncio.sleep(0)
    gate.open_all()
    result = await done
    return result.winner.branch, result.winner.round, result.text, tuple(result.timing_dependent)


GOOD = [[(0, 0), (1, 0), (2, 0)], [(1, 0), (2, 0)], [(2, 0), (0, 1), (1, 1)]]


@pytest.mark.parametrize("good", GOOD)
async def test_whichever_reply_comes_first_the_winner_is_the_same(good):
    found = {
        await drawn_in_order(order, good, "ordered")
        for order in permutations(range(BREADTH))
        for _ in range(2)
    }
    branch, number = min(good, key=lambda place: (place[1], place[0]))
    assert found == {(branch, number, f"good {branch}.{number}", ())}


async def test_these_orders_are_what_decides_where_the_first_reply_is_asked_for():
    """Proves that replies came in another order: with `pick="first"`, each has another winner."""
    found = [
        await drawn_in_order(order, GOOD[0], "first") for order in permutations(range(BREADTH))
    ]
    assert [branch for branch, *_ in found] == [order[0] for order in permutations(range(BREADTH))]
    assert {why for *_, why in found} == {("pick=first",)}

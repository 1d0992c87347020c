"""Strategies with own requests: the lane's limit holds for them, and their time is measured."""

import asyncio

import pytest

import abreast
from abreast.core.clock import sleep_until
from abreast.jobs.matrix.job import Matrix
from abreast.jobs.matrix.recorded_rows import rows_of
from abreast.jobs.matrix.spec import CellChoice
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.jobs.matrix.benches import FakeBench, study
from tests.turns import until

CELLS = 8


def own_study(cells=CELLS):
    inputs = ", ".join(f"{{id: i{number}, text: 't{number}'}}" for number in range(cells))
    return study(
        f"""
matrix:
  name: s
  models: [a/one]
  strategies: {{own: {{python: "mine:own"}}}}
  inputs: [{inputs}]
""",
        codes={"mine:own": "code"},
    )


class Client:
    """A provider's own client, outside of the lane, which counts its requests in flight."""

    def __init__(self):
        self.gate = Gate()
        self.now = self.peak = 0

    async def post(self, text):
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            await self.gate.pass_(text)
        finally:
            self.now -= 1
        return text.upper()


async def drive(function, *, width, store=None, clock=None, cells=CELLS, watch=None):
    bench = FakeBench(
        {"a/one": lambda prompt: prompt.upper()},
        limits=[lambda: abreast.Slots(width)],
        functions={"mine:own": function},
        gate=lambda _: asyncio.sleep(0),
        **({"clock": clock} if clock else {}),
    )
    matrix = Matrix(own_study(cells), bench, CellChoice(), width=width)
    store = store or MemoryStore()
    async with abreast.open_run("s", store=store, **({"clock": clock} if clock else {})) as run:
        work = asyncio.ensure_future(matrix.run(run))
        if watch is not None:
            await watch()
        async with asyncio.timeout(60):
            await work
    assert bench.counts["a"].now == 0
    return matrix, bench, {row.input: row for row in rows_of(store, store.newest("s"))}


async def settled():
    for _ in range(1000):
        await asyncio.sleep(0)


@pytest.mark.parametrize("width", [1, 4])
async def test_the_cap_holds_for_a_strategy_with_its_own_client(width):
    client = Client()

    async def own(value, model):
        return await client.post(value["text"])

    async def watch():
        await until(lambda: client.now >= width)
        await settled()
        assert client.now == width  # and no more come
        client.gate.open_all()

    matrix, bench, rows = await drive(own, width=width, watch=watch)
    assert (client.peak, bench.counts["a"].peak, matrix.tally.done) == (width, width, CELLS)
    assert {row.output for row in rows.values()} == {f"T{number}" for number in range(CELLS)}


@pytest.mark.parametrize("width", [1, 3])
async def test_permits_that_a_strategy_takes_are_all_that_it_holds(width):
    client, outside = Client(), []

    async def own(value, model):
        async with model.permit():
            text = await client.post(value["text"])
        outside.append(value["id"])
        await at_home.pass_(value["id"])  # what it does by itself needs no place
        return text

    at_home = Gate()

    async def watch():
        await until(lambda: client.now >= width)
        await settled()
        assert client.now == width
        client.gate.open_all()
        # Every cell that is in work.
        await until(lambda: len(outside) == min(CELLS, 2 * width + 2))
        at_home.open_all()

    matrix, _, rows = await drive(own, width=width, watch=watch)
    assert (client.peak, matrix.tally.done, len(rows)) == (width, CELLS, CELLS)


@pytest.mark.parametrize("width", [1, 2, 3])
async def test_calls_through_the_model_work_in_the_place_that_is_held_and_never_wait_for_it(width):
    async def own(value, model):
        first = await model.ask(value["text"])
        several = await asyncio.gather(*(model.ask(f"{first} {number}") for number in range(3)))
        async with model.permit():
            within = await model.ask("within")
            both = await asyncio.gather(model.ask("one"), model.ask("two"))
        return [first, *several, within, *both]

    matrix, bench, _ = await drive(own, width=width)
    assert matrix.tally.done == CELLS
    assert (bench.models["a/one"].peak, bench.counts["a"].peak) == (width, width)
    assert bench.asked == 7 * CELLS


async def test_a_permit_within_a_permit_is_refused_with_a_sentence():
    async def own(value, model):
        async with model.permit(), model.permit():
            return ""

    matrix, _, rows = await drive(own, width=1, cells=2)
    assert matrix.tally.failed == 2
    assert "held already" in rows["i0"].error


async def test_the_time_of_own_work_is_measured_from_the_moment_it_has_a_place():
    clock = ManualClock()

    async def own(value, model):
        await sleep_until(clock, clock.now() + 5.0)
        return "x"

    async def watch():
        for _ in range(2):
            await until(lambda: clock.next_due is not None)
            await clock.advance(5.0)

    _, _, rows = await drive(own, width=1, cells=2, clock=clock, watch=watch)
    assert [(row.queue_s, row.service_s, row.wall_s) for row in rows.values()] == [
        (0.0, 5.0, 5.0),
        (5.0, 5.0, 10.0),
    ]
    assert [(row.attempts, row.in_flight) for row in rows.values()] == [(1, 1), (1, 1)]


async def test_an_error_of_own_work_gives_its_place_back():
    async def own(value, model):
        raise ValueError("no")

    matrix, _, rows = await drive(own, width=1)
    assert (matrix.tally.failed, {row.error for row in rows.values()}) == (CELLS, {"no"})

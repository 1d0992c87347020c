"""Law 2: executing <= width and held <= span at every instant.

With enough ready items the peak equals the width.
"""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.testing import Gate
from tests.properties import tried


class Counted:
    """Counts what is inside at once, also when it ends by an error."""

    def __init__(self):
        self.inside = 0
        self.peak = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self.inside += 1
            self.peak = max(self.peak, self.inside)

    def __exit__(self, *_):
        with self._lock:
            self.inside -= 1


@tried(100)
@given(
    width=st.integers(1, 6), extra=st.integers(0, 6), turns=st.lists(st.integers(0, 5), max_size=20)
)
def test_neither_width_nor_span_is_ever_passed(width, extra, turns):
    counted, read, taken = Counted(), [], []

    def items():
        for index in range(len(turns)):
            assert len(read) - len(taken) <= width + extra, (
                "read past the span"
            )  # one may be in the caller's hand
            read.append(index)
            yield index

    async def work(item):
        with counted:
            for _ in range(turns[item]):
                await asyncio.sleep(0)
            if item % 3 == 2:
                raise LookupError(item)

    async def main():
        async with abreast.open_run("law") as run:
            mapped = run.map(work, items(), width=width, span=width + extra)
            async for outcome in mapped:
                taken.append(outcome)
            return mapped.peak

    peak = asyncio.run(main())
    assert counted.inside == 0
    assert counted.peak <= width
    assert counted.peak <= peak <= width


@pytest.mark.parametrize("width", [1, 2, 10])
async def test_a_barrier_of_width_parties_clears_so_the_peak_is_reached(width):
    barrier, counted = asyncio.Barrier(width), Counted()

    async def work(item):
        with counted:
            await barrier.wait()
            return item

    async with abreast.open_run("law") as run:
        mapped = run.map(work, range(3 * width), width=width)
        values = await mapped.values()
    assert values == list(range(3 * width))
    assert counted.peak == mapped.peak == width


def test_a_barrier_of_width_threads_clears_so_plain_functions_run_abreast():
    barrier, counted = threading.Barrier(4), Counted()

    def work(item):
        with counted:
            barrier.wait(timeout=60)
            return item

    assert [o.value for o in abreast.map(work, range(12), width=4)] == list(range(12))
    assert counted.peak == 4


async def test_an_item_past_the_width_does_not_start_while_the_others_are_held():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    async with abreast.open_run("law") as run, run.map(work, range(10), width=3) as outcomes:
        await gate.wait_for(0, 1, 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert gate.arrived == [0, 1, 2]
        gate.open_all()
        assert len([outcome async for outcome in outcomes]) == 10


async def test_a_slow_caller_holds_reading_back_to_the_span():
    read = []

    def items():
        for number in range(1000):
            read.append(number)
            yield number

    async def work(item):
        return item

    async with abreast.open_run("law") as run, run.map(work, items(), width=4, span=8) as outcomes:
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(read) == 8
        first = await anext(outcomes)
        for _ in range(50):
            await asyncio.sleep(0)
        assert first.value == 0
        assert len(read) == 9


async def test_width_above_the_number_of_items_is_fine_and_peak_says_so():
    async def work(item):
        return item

    async with abreast.open_run("law") as run:
        mapped = run.map(work, range(3), width=50)
        assert await mapped.values() == [0, 1, 2]
        assert mapped.peak == 3


async def test_no_items_give_no_outcomes_and_one_item_gives_one():
    async def work(item):
        return item

    async with abreast.open_run("law") as run:
        assert await run.map(work, [], width=3, name="none").values() == []
        assert await run.map(work, [7], width=3, name="one").values() == [7]
        assert await run.map(work, iter(()), width=1, name="empty iterator").values() == []

"""Laws 3 and 4: within the span a slow item leaves no place idle, and no item starves."""

import asyncio

import pytest

import abreast
from abreast.testing import Gate, ManualClock


async def test_a_slow_first_item_does_not_idle_the_window():
    gate = Gate()

    async def work(item):
        if item == 0:
            await gate.pass_(0)
        else:
            await gate.pass_(item)
        return item

    gate.open(*range(1, 12))
    async with (
        abreast.open_run("law") as run,
        run.map(work, range(12), width=3, span=12) as outcomes,
    ):
        await gate.wait_for(*range(12))  # all others went through while item 0 was held
        assert gate.held == {0}
        gate.open(0)
        assert [outcome.value async for outcome in outcomes] == list(range(12))


async def test_with_one_slow_item_the_wall_time_is_that_of_the_rest_on_the_other_places():
    clock = ManualClock()
    width, count, slow = 4, 61, 20.0

    async def work(item):
        woken = asyncio.get_running_loop().create_future()
        clock.call_at(clock.now() + (slow if item == 0 else 1.0), lambda: woken.set_result(None))
        await woken

    async with abreast.open_run("law", clock=clock) as run:
        done = asyncio.ensure_future(run.map(work, range(count), width=width, span=count).values())
        await clock.run_until(done)
    assert clock.now() == pytest.approx(max(slow, (count - 1) / (width - 1)), rel=0.1)


async def test_items_in_backoff_hold_no_place_in_the_window():
    clock = ManualClock()
    started = []

    async def work(item):
        started.append(item)
        if item == 0 and abreast.current().attempt == 1:
            raise ConnectionError("later")
        return item

    async with abreast.open_run("law", clock=clock) as run:
        retry = abreast.Retry(1, base=100.0, cap=100.0)
        mapped = asyncio.ensure_future(
            run.map(work, range(4), width=1, span=8, retry=retry).values()
        )
        for _ in range(30):
            await asyncio.sleep(0)
        assert started == [0, 1, 2, 3]
        await clock.advance(100.0)
        assert await mapped == [0, 1, 2, 3]
    assert started == [0, 1, 2, 3, 0]


async def test_an_item_whose_lane_is_full_is_stepped_over():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)
        return item

    lanes = {"slow": abreast.Slots(1), "fast": abreast.Slots(4)}
    async with abreast.open_run("law", lanes=lanes) as run:
        lane = lambda item: "slow" if item < 5 else "fast"  # noqa: E731
        async with run.map(work, range(9), width=5, span=9, lane=lane) as outcomes:
            await gate.wait_for(0, 5, 6, 7, 8)
            assert gate.held == {0, 5, 6, 7, 8}
            gate.open_all()
            assert [outcome.value async for outcome in outcomes] == list(range(9))
    assert [item for item in gate.arrived if item < 5] == [0, 1, 2, 3, 4]


async def test_a_lane_reaches_its_limit_and_never_passes_it_while_two_lanes_reach_twice_that():
    gate, inside, peaks = Gate(), {"a": 0, "b": 0}, {"a": 0, "b": 0}

    async def work(item):
        lane = "ab"[item % 2]
        inside[lane] += 1
        peaks[lane] = max(peaks[lane], inside[lane])
        try:
            await gate.pass_(item)
        finally:
            inside[lane] -= 1
        return item

    lanes = {"a": abreast.Slots(3), "b": abreast.Slots(3)}
    async with abreast.open_run("law", lanes=lanes) as run:
        async with run.map(work, range(20), width=20, lane=lambda item: "ab"[item % 2]) as outcomes:
            await gate.wait_for(*range(6))
            for _ in range(30):
                await asyncio.sleep(0)
            assert gate.arrived == list(range(6))
            gate.open_all()
            assert len([outcome async for outcome in outcomes]) == 20
    assert peaks == {"a": 3, "b": 3}


async def test_two_maps_on_one_lane_share_it_in_the_order_they_came():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)
        return item

    async with abreast.open_run("law", lanes={"one": abreast.Slots(1)}) as run:
        async with (
            run.map(work, ["a0", "a1"], width=2, lane="one", name="a") as first,
            run.map(work, ["b0", "b1"], width=2, lane="one", name="b") as second,
        ):
            gate.open_all()
            assert [o.value async for o in first] == ["a0", "a1"]
            assert [o.value async for o in second] == ["b0", "b1"]
    assert gate.arrived == ["a0", "a1", "b0", "b1"]


async def test_a_rate_paces_items_evenly():
    clock = ManualClock()
    started = []

    async def work(item):
        started.append(clock.now())
        return item

    async with abreast.open_run("law", clock=clock, lanes={"api": abreast.Rate(60, per=60)}) as run:
        done = asyncio.ensure_future(run.map(work, range(5), width=5, lane="api").values())
        await clock.run_until(done)
        assert await done == [0, 1, 2, 3, 4]
    assert started == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


async def test_holding_all_slots_of_a_lane_means_running_alone():
    gate, inside, alone = Gate(), set(), []

    async def behaviour(item):
        inside.add(item)
        try:
            await gate.pass_(item)
        finally:
            inside.discard(item)

    async def measure(item):
        alone.append(frozenset(inside))
        inside.add(item)
        await asyncio.sleep(0)
        inside.discard(item)

    async with abreast.open_run("law", lanes={"machine": abreast.Slots(3)}) as run:
        async with (
            run.map(behaviour, "abcdef", width=6, lane="machine") as checks,
            run.map(measure, "XY", width=2, hold={"machine": "all"}) as times,
        ):
            await gate.wait_for("a", "b", "c")
            gate.open_all()
            assert len([o async for o in checks]) == 6
            assert len([o async for o in times]) == 2
    assert alone == [frozenset(), frozenset()]

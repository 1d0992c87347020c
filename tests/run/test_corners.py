"""Corner cases: cancelled while reclaiming a slot, a slow observer, recorded usage."""

import asyncio
import logging
import threading

import pytest

import abreast
from abreast.core.errors import BudgetSpent
from abreast.core.outcome import Usage
from abreast.run import journal
from abreast.run.current import CurrentItem
from abreast.run.item_state import ItemPlace, current_state
from abreast.testing import Gate, MemoryStore


async def test_an_item_cancelled_while_it_takes_its_slot_back_leaves_the_lane_whole():
    gate = Gate()

    async def leaf(item):
        await gate.pass_(item)

    async def outer(item):
        await abreast.current().run.map(leaf, [f"{item} leaf"], width=1).values()

    async def holder(item):
        await gate.pass_(item)

    lane = abreast.Slots(1)
    async with abreast.open_run("r", lanes={"one": lane}) as run:
        first = run.map(outer, ["a"], width=1, lane="one", name="first")
        await first.__aenter__()
        await gate.wait_for("a leaf")  # it waits beneath, so its slot is lent
        second = run.map(holder, ["b"], width=1, lane="one", name="second")
        await second.__aenter__()
        await gate.wait_for("b")  # and taken by another
        gate.open("a leaf")
        for _ in range(20):
            await asyncio.sleep(0)
        await first.__aexit__(None, None, None)  # it stands in line for its slot just now
        assert lane.taken == 1
        gate.open_all()
        assert [o.state async for o in second] == ["done"]
    assert lane.taken == 0
    assert lane.line.users == 0


async def test_usage_is_recorded_and_read_again():
    store = MemoryStore()

    async def work(item):
        abreast.current().add_usage(Usage(1, 100, 20, None if item else 0.5, estimate=bool(item)))
        return item

    async def main(stop):
        async with abreast.open_run("u", store=store) as run:
            outcomes = [o async for o in run.map(work, range(2), width=1)]
            if stop:
                raise KeyboardInterrupt
            return outcomes

    with pytest.raises(KeyboardInterrupt):
        await main(stop=True)
    outcomes = await main(stop=False)
    assert [o.usage for o in outcomes] == [
        Usage(1, 100, 20, 0.5),
        Usage(1, 100, 20, None, estimate=True),
    ]


async def test_a_backlog_past_its_bound_is_dropped_and_said(monkeypatch, caplog):
    monkeypatch.setattr(journal, "OBSERVER_QUEUE_EVENTS", 3)
    release, seen = threading.Event(), []

    def slow(event):
        release.wait(60)
        seen.append(event.seq)

    async def work(item):
        return item

    with caplog.at_level(logging.WARNING, "abreast"):
        async with abreast.open_run("r", hooks=[slow]) as run:
            assert len(await run.map(work, range(20), width=2).values()) == 20
            release.set()
    assert len(seen) < 20
    assert "events were not shown" in caplog.text


async def test_a_place_can_travel_and_has_no_run():
    async def work(item):
        return current_state().luggage().args[0]

    async with abreast.open_run("r", lanes={"tree": abreast.Pool(["oak"])}, seed=3) as run:
        (place,) = await run.map(work, [1], width=1, hold="tree").values()
    assert place == ItemPlace(
        "r/work/0000", "work", "0000", 0, 1, place.seed, None, {"tree": "oak"}
    )
    away = CurrentItem(place)
    assert (away.path, away.map_name, away.key, away.index) == ("r/work/0000", "work", "0000", 0)
    assert (away.attempt, away.usage, away.held) == (1, None, {"tree": "oak"})
    away.note("nothing", is_written=True)
    for needs_the_run in (lambda: away.run, lambda: away.add_usage(abreast.Usage(1))):
        with pytest.raises(RuntimeError, match="in another process than its run"):
            needs_the_run()


async def test_a_map_knows_its_own_store_and_run_its_id():
    async with abreast.open_run("r") as run:
        assert (run.id, run.store, run.resumed) == (None, None, False)
        with pytest.raises(ValueError, match="no lane 'nowhere'"):
            await run.map(lambda x: x, [abreast.Item("a", 1, lane="nowhere")], width=1).values()


async def test_a_cancelled_outcome_is_read_back_as_cancelled():
    from abreast.run.outcome_record import restore

    store, gate = MemoryStore(), Gate()

    async def work(item):
        await gate.pass_(item)

    with pytest.raises(KeyboardInterrupt):
        async with abreast.open_run("r", store=store) as run:
            async with run.map(work, [1], width=1):
                await gate.wait_for(1)
                raise KeyboardInterrupt
    (recorded,) = store.outcomes("r-1")
    outcome = restore(recorded)
    assert (outcome.state, outcome.reason, outcome.ok) == ("cancelled", "left", False)
    assert outcome.timing.wall >= 0


async def test_a_function_without_code_has_a_fingerprint_too():
    store = MemoryStore()
    async with abreast.open_run("r", store=store) as run:
        assert await run.map(str.upper, ["a"], width=1).values() == ["A"]
        assert await run.map(Caller(), ["a"], width=1, name="called").values() == ["a!"]
        assert await run.map(AsyncCaller(), ["a"], width=1, name="async").values() == ["a?"]
        deferred = run.map(lambda item: AsyncCaller()(item), ["a"], width=1)  # noqa: PLW0108 - not async itself
        assert await deferred.values() == ["a?"]


class Caller:
    def __call__(self, item):
        return item + "!"


class AsyncCaller:
    async def __call__(self, item):
        return item + "?"


async def test_stop_iteration_from_a_thread_is_that_items_failure():
    def work(item):
        raise StopIteration

    async with abreast.open_run("r") as run:
        (outcome,) = [o async for o in run.map(work, [1], width=1)]
    assert "StopIteration" in str(outcome.error)


@pytest.mark.parametrize("requests", [1, 2, 3, 4])
async def test_what_runs_beneath_an_item_never_waits_for_the_items_own_request(requests):
    ran = []

    async def call(item):
        ran.append(item)
        return item

    async def item(number):
        return await abreast.current().run.map(call, range(3), width=2).values()

    async def all_of_it():
        async with abreast.open_run("b", budget=abreast.Budget(requests=requests)) as run:
            return await run.map(item, [0], width=1).values()

    if requests >= 3:
        assert await all_of_it() == [[0, 1, 2]]
    else:
        with pytest.raises(BudgetSpent):  # what all items share is spent: no failure of this one
            await all_of_it()
    assert len(ran) == min(3, requests)


@pytest.mark.parametrize(
    "items",
    [
        [abreast.Item("0001", "a"), "b"],
        ["a", abreast.Item("0000", "b")],
        [abreast.Item("x", "a"), "b", abreast.Item("0001", "c")],
    ],
)
async def test_a_key_that_is_anothers_position_is_refused(items):
    async def work(item):
        return item

    async with abreast.open_run("r") as run:
        with pytest.raises(abreast.core.errors.KeyReused):
            await run.map(work, items, width=3).values()


async def test_keys_that_look_like_positions_are_fine_where_all_have_one():
    async def work(item):
        return item

    async with abreast.open_run("r") as run:
        keys = [abreast.Item(f"{number:04d}", number) for number in (2, 0, 1)]
        assert await run.map(work, keys, width=2).values() == [2, 0, 1]


async def test_a_pool_cannot_be_held_with_a_weight():
    async with abreast.open_run("r", lanes={"tree": abreast.Pool(["a", "b"])}) as run:
        with pytest.raises(ValueError, match="one thing at a time"):
            await run.map(str, [1], width=1, hold={"tree": "all"}).values()


async def test_a_decider_may_narrow_width_and_span_together():
    class Narrow:
        def before_map(self, plan):
            return {"span": 2, "width": 2}

    async with abreast.open_run("r", hooks=[Narrow()]) as run:
        mapped = run.map(str, range(6), width=4)
        assert await mapped.values() == list("012345")
        assert mapped.peak <= 2


@pytest.mark.parametrize("retry", [None, 1])
async def test_an_error_outside_of_exception_is_that_items_failure(retry):
    class Odd(BaseException):
        pass

    async def work(item):
        raise Odd

    async with abreast.open_run("r") as run:
        (outcome,) = [
            o
            async for o in run.map(
                work, [1], width=1, retry=abreast.Retry(1, base=0, cap=0) if retry else None
            )
        ]
    assert isinstance(outcome.error, Odd)

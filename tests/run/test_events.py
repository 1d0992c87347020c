"""Events, observers and deciders."""

import asyncio
import logging
import threading

import pytest

import abreast
from abreast.testing import ManualClock, MemoryStore


async def work(item):
    if item == 1 and abreast.current().attempt == 1:
        raise ConnectionError("once")
    return item


RETRY = abreast.Retry(1, base=0.0, cap=0.0)


async def test_events_are_gap_free_in_order_and_alike_in_store_and_observer():
    seen, store = [], MemoryStore()
    async with abreast.open_run("e", store=store, hooks=[seen.append]) as run:
        assert await run.map(work, range(3), width=2, retry=RETRY).values() == [0, 1, 2]
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert store.events("e-1") == seen
    kinds = [event.kind for event in seen if event.kind != "batch-committed"]
    assert kinds[:2] == ["run-started", "map-started"]
    assert kinds[-2:] == ["map-ended", "run-ended"]
    started = [kind for kind in kinds[2:-2] if kind not in ("item-queued", "limit-waited")]
    assert sorted(started) == sorted(
        ["item-started"] * 4 + ["attempt-failed"] + ["item-settled"] * 3
    )
    assert [event.path for event in seen if event.kind == "attempt-failed"] == ["e/work/0001"]


async def test_every_batch_says_how_long_its_commit_took_several_in_one_event():
    clock, store = ManualClock(), MemoryStore()
    async with abreast.open_run("e", store=store, clock=clock) as run:
        for number in range(20):
            await run.map(work, [0], width=1, name=f"m{number}").values()  # each a batch of its own
        await clock.advance(1.0)
        await run.map(work, [0], width=1).values()
    notes = [event.data for event in store.events("e-1") if event.kind == "batch-committed"]
    assert len(notes) == 2
    assert all(len(note["events"]) == len(note["seconds"]) for note in notes)
    assert len(notes[1]["events"]) >= 20
    assert all(count > 1 for note in notes for count in note["events"])
    assert all(seconds >= 0 for note in notes for seconds in note["seconds"])


async def test_a_raising_observer_changes_nothing_and_is_reported_once(caplog):
    def broken(event):
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "abreast"):
        async with abreast.open_run("e", hooks=[broken]) as run:
            assert await run.map(work, [0, 2], width=1).values() == [0, 2]
    assert len(caplog.records) == 1


async def test_a_slow_observer_never_blocks_the_run():
    release, seen = threading.Event(), []

    def slow(event):
        release.wait(60)
        seen.append(event.seq)

    async with abreast.open_run("e", hooks=[slow]) as run:
        assert await run.map(work, [0, 2], width=1).values() == [0, 2]
        assert seen == []
        release.set()
    assert seen == sorted(seen)
    assert len(seen) >= 5


async def test_an_observer_may_open_a_map_of_its_own():
    found = []

    def curious(event):
        if event.kind == "run-started":
            found.extend(outcome.value for outcome in abreast.map(lambda x: x, [1, 2], width=2))

    async with abreast.open_run("e", hooks=[curious]) as run:
        assert await run.map(work, [0], width=1).values() == [0]
    assert found == [1, 2]


class Decider:
    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def before_map(self, plan):
        self.asked.append(plan)
        return self.answer

    def before_step(self, plan):
        self.asked.append(plan)
        return self.answer


async def test_a_decider_may_change_the_numbers():
    decider = Decider({"width": 2, "span": 3, "retries": 1, "timeout": 5.0})
    barrier = asyncio.Barrier(2)

    async def meet(item):
        await barrier.wait()
        return item

    async with abreast.open_run("e", hooks=[decider]) as run:
        mapped = run.map(meet, range(4), width=1)
        assert await mapped.values() == [0, 1, 2, 3]
        assert mapped.peak == 2
        assert await run.step("one", work, 0) == 0
    assert [(plan.path, plan.width) for plan in decider.asked] == [("e/meet", 1), ("e/one", 1)]


@pytest.mark.parametrize(
    "answer",
    [
        {"width": 0},
        {"width": -1},
        {"width": "3"},
        {"width": True},
        {"width": 2.0},
        {"span": 0},
        {"retries": -1},
        {"timeout": 0},
        {"height": 3},
        3,
    ],
)
async def test_a_decider_that_answers_nonsense_is_named_before_anything_starts(answer):
    ran, seen = [], []

    async def note(item):
        ran.append(item)

    async with abreast.open_run("e", hooks=[Decider(answer), seen.append]) as run:
        with pytest.raises(ValueError, match="before_map of Decider"):
            await run.map(note, range(3), width=2).values()
    assert ran == []
    assert [event.kind for event in seen][-1] == "run-ended"


async def test_a_hook_that_is_neither_is_refused():
    with pytest.raises(TypeError, match="a hook is a function of one event"):
        async with abreast.open_run("e", hooks=[object()]):
            pass


async def test_an_item_can_add_notes_of_its_own():
    store = MemoryStore()

    async def note(item):
        abreast.current().note("child-started", pgid=7)

    async with abreast.open_run("e", store=store) as run:
        await run.map(note, [1], width=1).values()
    (found,) = store.events("e-1", kinds={"child-started"})
    assert (found.path, found.data) == ("e/note/0000", {"pgid": 7})
    async with abreast.open_run("e") as run:  # without a journal there is nowhere to note it
        await run.map(note, [1], width=1).values()


async def test_the_parts_of_an_items_time_sum_to_its_wall_time():
    clock = ManualClock()

    async def slow(item):
        woken = asyncio.get_running_loop().create_future()
        clock.call_at(clock.now() + 2.0, lambda: woken.set_result(None))
        await woken
        if abreast.current().attempt == 1:
            raise ConnectionError("once")

    async with abreast.open_run("e", clock=clock, seed=3, lanes={"one": abreast.Slots(1)}) as run:
        retry = abreast.Retry(1, base=8.0, cap=8.0)
        mapped = run.map(slow, range(2), width=2, lane="one", retry=retry)
        done = asyncio.ensure_future(_all(mapped))
        await clock.run_until(done)
    outcomes = done.result()
    assert [len(o.timing.service) for o in outcomes] == [2, 2]
    assert all(service == pytest.approx(2.0) for o in outcomes for service in o.timing.service)
    assert all(0 < o.timing.backoff <= 8.0 for o in outcomes)
    assert outcomes[1].timing.waited >= 2.0  # for the slot that the first item held
    walls = [o.timing.wall for o in outcomes]
    assert max(walls) == pytest.approx(clock.now())
    assert all(
        o.timing.wall
        == pytest.approx(
            o.timing.queued + o.timing.waited + sum(o.timing.service) + o.timing.backoff
        )
        for o in outcomes
    )


async def _all(mapped):
    return [outcome async for outcome in mapped]


async def test_the_jitter_of_a_backoff_comes_from_the_seed():
    async def fail(item):
        raise ConnectionError(item)

    found = []
    for seed in (1, 1, 2):
        clock = ManualClock()
        async with abreast.open_run("e", clock=clock, seed=seed) as run:
            done = asyncio.ensure_future(_all(run.map(fail, range(3), width=3, retry=2)))
            await clock.run_until(done)
            found.append([o.timing.backoff for o in done.result()])
    assert found[0] == found[1] != found[2]


async def test_a_retry_after_is_waited_for():
    clock = ManualClock()

    class Busy(Exception):
        retry_after = 77.0

    async def busy(item):
        if abreast.current().attempt == 1:
            raise Busy
        return clock.now()

    async with abreast.open_run("e", clock=clock) as run:
        done = asyncio.ensure_future(run.map(busy, [0], width=1, retry=1).values())
        await clock.run_until(done)
    assert done.result()[0] >= 77.0


async def test_a_fatal_error_is_not_tried_again():
    tried = []

    async def bug(item):
        tried.append(item)
        raise TypeError("a bug")

    async with abreast.open_run("e") as run:
        (outcome,) = await _all(run.map(bug, [0], width=1, retry=5))
    assert tried == [0]
    assert str(outcome.error) == "a bug"


async def test_a_timeout_is_an_attempt_and_says_which():
    clock = ManualClock()

    async def hang(item):
        await asyncio.get_running_loop().create_future()

    async with abreast.open_run("e", clock=clock) as run:
        mapped = run.map(hang, [0], width=1, timeout=30, retry=abreast.Retry(1, base=0, cap=0))
        done = asyncio.ensure_future(_all(mapped))
        await clock.run_until(done)
    (outcome,) = done.result()
    assert isinstance(outcome.error, TimeoutError)
    assert str(outcome.error) == "e/hang/0000: attempt 2 took longer than 30 s"
    assert outcome.timing.service == (30.0, 30.0)
    assert mapped.timing_dependent == {"timeout"}


async def test_what_depends_on_timing_is_recorded_and_known_to_a_resumed_run():
    store = MemoryStore()

    async def hang(item):
        await asyncio.get_running_loop().create_future()

    for resume in ("never", "must"):
        async with abreast.open_run("e", store=store, resume=resume) as run:
            mapped = run.map(hang, [0], width=1, timeout=0.001)
            await _all(mapped)
            assert mapped.timing_dependent == {"timeout"}
            run.halt("not yet") if resume == "never" else None
    ends = [event.data for event in store.events("e-1") if event.kind == "map-ended"]
    assert [end["timing_dependent"] for end in ends] == ["timeout", "timeout"]

"""Virtual time moves only when it is advanced, and due calls are made in order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.clock import Timer
from abreast.testing import ManualClock


@given(
    start=st.integers(-100, 100),
    dues=st.lists(st.integers(-100, 200), max_size=12),
    steps=st.lists(st.integers(0, 60), max_size=8),
)
def test_what_is_due_is_called_once_in_order_and_on_time(start, dues, steps):
    clock = ManualClock(start)
    called: list[tuple[float, int]] = []
    for number, when in enumerate(dues):
        clock.call_at(when, lambda when=when, number=number: called.append((when, number)))
    assert called == []
    for seconds in steps:
        clock.advance_nowait(seconds)
        expected = sorted((when, number) for number, when in enumerate(dues) if when <= clock.now())
        assert called == expected
        late = [when for when in dues if when > clock.now()]
        assert clock.next_due == (min(late) if late else None)
    assert clock.now() == clock.wall() == start + sum(steps)


def test_a_call_sees_the_time_it_was_due_and_may_ask_for_another():
    clock = ManualClock()
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.now())
        if len(seen) < 4:
            clock.call_at(clock.now() + 2, again)

    clock.call_at(1, again)
    clock.advance_nowait(6)
    assert seen == [1, 3, 5]
    assert clock.now() == 6
    assert clock.next_due == 7


def test_an_overdue_call_does_not_turn_time_back():
    clock = ManualClock(10)
    seen: list[float] = []
    clock.call_at(3, lambda: seen.append(clock.now()))
    clock.advance_nowait(0)
    assert seen == [10]


def test_a_call_that_was_taken_back_is_never_made_even_by_one_due_at_the_same_time():
    clock = ManualClock()
    called: list[str] = []
    timers: list[Timer] = []
    clock.call_at(1, lambda: [timer.cancel() for timer in timers])
    timers.append(clock.call_at(1, lambda: called.append("second")))
    clock.call_at(2, lambda: called.append("third")).cancel()
    clock.advance_nowait(5)
    assert called == []
    assert clock.next_due is None


async def test_tasks_get_their_turns_between_calls():
    clock = ManualClock()
    seen: list[str] = []
    first, second = asyncio.Event(), asyncio.Event()
    clock.call_at(1, first.set)
    clock.call_at(2, second.set)

    async def watch() -> None:
        await first.wait()
        seen.append(f"first at {clock.now():g}")
        await second.wait()
        seen.append(f"second at {clock.now():g}")

    watching = asyncio.create_task(watch())
    await clock.advance(9)
    await watching
    assert seen == ["first at 1", "second at 2"]
    assert clock.now() == 9


async def test_running_until_something_is_done_stops_there():
    clock = ManualClock()
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    clock.call_at(3, lambda: None)
    clock.call_at(5, lambda: done.set_result(None))
    clock.call_at(7, lambda: None)
    await clock.run_until(done)
    assert clock.now() == 5
    await clock.run_until(done)
    assert clock.next_due == 7


async def test_running_until_something_that_can_not_be_done_any_more_is_an_error():
    with pytest.raises(RuntimeError, match="nothing is due any more"):
        await ManualClock().run_until(asyncio.get_running_loop().create_future())

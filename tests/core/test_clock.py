"""The system clock, and waiting on any clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from abreast.core.clock import SYSTEM_CLOCK, SystemClock, pause, sleep_until
from abreast.testing import ManualClock
from abreast.testing.clock import settle


def test_the_system_clock_is_the_machines():
    assert SystemClock.now is time.monotonic
    assert SystemClock.wall is time.time


async def test_what_is_overdue_is_called_on_a_later_turn_of_the_loop_in_order():
    called: list[str] = []
    SYSTEM_CLOCK.call_at(SYSTEM_CLOCK.now() - 2, lambda: called.append("first"))
    SYSTEM_CLOCK.call_at(SYSTEM_CLOCK.now() - 1, lambda: called.append("second"))
    assert called == []
    await settle()
    assert called == ["first", "second"]


async def test_a_call_that_was_taken_back_is_not_made():
    called: list[str] = []
    timer = SYSTEM_CLOCK.call_at(SYSTEM_CLOCK.now(), lambda: called.append("late"))
    timer.cancel()
    timer.cancel()
    await settle()
    assert called == []


async def test_a_call_is_due_in_the_seconds_that_are_left(monkeypatch):
    delays: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr("abreast.core.clock.time.monotonic", lambda: 100.0)
    monkeypatch.setattr(loop, "call_later", lambda delay, _: delays.append(delay))
    SYSTEM_CLOCK.call_at(107.5, lambda: None)
    SYSTEM_CLOCK.call_at(99.0, lambda: None)
    monkeypatch.undo()
    assert delays == [7.5, 0.0]


async def test_sleeping_until_now_or_earlier_is_no_wait():
    await sleep_until(SYSTEM_CLOCK, SYSTEM_CLOCK.now() - 1)


async def test_a_sleeper_wakes_at_its_time_and_not_before():
    clock = ManualClock(100.0)
    sleeper = asyncio.create_task(sleep_until(clock, 130.0))
    await clock.advance(29.999)
    assert not sleeper.done()
    await clock.advance(0.001)
    assert sleeper.done()
    assert clock.next_due is None


async def test_a_sleeper_that_is_cancelled_leaves_no_call_behind():
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep_until(clock, 10.0))
    await settle()
    assert clock.next_due == 10.0
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    assert clock.next_due is None


async def test_a_sleeper_that_is_cancelled_in_the_moment_it_is_due_is_cancelled():
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep_until(clock, 10.0))
    await settle()
    sleeper.cancel()
    clock.advance_nowait(10.0)
    with pytest.raises(asyncio.CancelledError):
        await sleeper


async def test_sleepers_wake_in_the_order_of_their_times():
    clock = ManualClock()
    woken: list[float] = []

    async def sleep(when: float) -> None:
        await sleep_until(clock, when)
        woken.append(when)

    sleepers = [asyncio.create_task(sleep(when)) for when in (3.0, 1.0, 2.0)]
    await clock.advance(5.0)
    assert woken == [1.0, 2.0, 3.0]
    assert all(sleeper.done() for sleeper in sleepers)


def test_a_pause_blocks_the_thread_that_asks_for_it(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr("abreast.core.clock.time.sleep", slept.append)
    pause(0.25)
    assert slept == [0.25]

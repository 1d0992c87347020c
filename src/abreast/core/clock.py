"""Time, as everything here sees it: the only module that asks the machine what time it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later and can be taken back."""

    def cancel(self) -> None:
        """Take it back; harmless when it has been made already."""


class Clock(Protocol):
    """What time it is, and a way to be called later.

    `abreast.testing.ManualClock` is one that only you move.
    """

    def now(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""

    def wall(self) -> float:
        """Seconds since 1970, for people to read."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Have `callback` called on the running loop once `now() >= when`."""


class SystemClock:
    """The machine's own clock, on the running event loop."""

    __slots__ = ()

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Have `callback` called on the running loop once `now() >= when`."""
        return asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), callback)


SYSTEM_CLOCK = SystemClock()


async def sleep_until(clock: Clock, when: float) -> None:
    """Wait on `clock` until `when`."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    timer = clock.call_at(when, wake)
    try:
        await woken
    finally:
        timer.cancel()


def pause(seconds: float) -> None:
    """Block this thread; for the writer's polling of a busy disk, never for the loop."""
    time.sleep(seconds)

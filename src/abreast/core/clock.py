"""The clock port and the system clock; no other module reads the machine's time."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel it; has no effect if the call has been made already."""


class Clock(Protocol):
    """Tells the time and schedules calls.

    `abreast.testing.ManualClock` is one that only the test advances.
    """

    def now(self) -> float:
        """Seconds on a clock that never goes back; only differences have a meaning."""

    def wall(self) -> float:
        """Seconds since 1970, for people to read."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the running loop once `now() >= when`."""


class SystemClock:
    """The machine's own clock, on the running event loop."""

    __slots__ = ()

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the running loop once `now() >= when`."""
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

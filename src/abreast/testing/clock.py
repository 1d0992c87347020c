"""A clock that moves only when the test advances it."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class _ScheduledCall:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel it."""
        self.callback = None


class ManualClock:
    """Virtual time: `now()` is constant until `advance` moves it and makes the calls that are due.

    In a test:

        clock = ManualClock()
        async with abreast.open_run("test", clock=clock) as run:
            ...
            await clock.advance(30)      # thirty seconds pass at once

    Args:
        now: the time at the start.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._scheduled: list[tuple[float, int, _ScheduledCall]] = []
        self._sequence = count()

    def now(self) -> float:
        """The virtual time."""
        return self._now

    def wall(self) -> float:
        """The virtual time, as a time of day."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> _ScheduledCall:
        """Call `callback` when the time reaches `when`."""
        scheduled = _ScheduledCall(callback)
        heappush(self._scheduled, (when, next(self._sequence), scheduled))
        return scheduled

    @property
    def next_due(self) -> float | None:
        """When the next call is due, or None."""
        while self._scheduled and self._scheduled[0][2].callback is None:
            heappop(self._scheduled)
        return self._scheduled[0][0] if self._scheduled else None

    def advance_nowait(self, seconds: float) -> None:
        """Let time pass and make the calls that are due, in order, without running any task."""
        until = self._now + seconds
        while (when := self.next_due) is not None and when <= until:
            self._fire(when)
        self._now = max(self._now, until)

    async def advance(self, seconds: float) -> None:
        """Let time pass; tasks run as far as they can after each due call, and at the end."""
        until = self._now + seconds
        await settle()
        while (when := self.next_due) is not None and when <= until:
            self._fire(when)
            await settle()
        self._now = max(self._now, until)
        await settle()

    async def run_until(self, done: asyncio.Future[object]) -> None:
        """Let time pass from one scheduled call to the next until `done`.

        Raises RuntimeError if no call is scheduled any more.
        """
        await settle()
        while not done.done():
            when = self.next_due
            if when is None:
                raise RuntimeError("nothing is due any more, and it is not done")
            self._fire(when)
            await settle()

    def _fire(self, when: float) -> None:
        self._now = max(self._now, when)
        scheduled = heappop(self._scheduled)[2]
        callback, scheduled.callback = scheduled.callback, None
        if callback is not None:
            callback()


async def settle(turns: int = 50) -> None:
    """Run the loop for a number of turns, so that tasks run as far as they can."""
    for _ in range(turns):
        await asyncio.sleep(0)

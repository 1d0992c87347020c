"""A clock that only moves when you say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class _Due:
    """A call that is due at some time."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Take it back."""
        self.callback = None


class ManualClock:
    """Virtual time: `now()` stands still until `advance` moves it, and what is due is called in order.

    clock = ManualClock()
    async with abreast.open_run("test", clock=clock) as run:
        ...
        await clock.advance(30)      # thirty seconds pass at once
    """

    def __init__(self, now: float = 0.0) -> None:
        """Begin at `now`."""
        self._now = now
        self._due: list[tuple[float, int, _Due]] = []
        self._ties = count()

    def now(self) -> float:
        """The virtual time."""
        return self._now

    def wall(self) -> float:
        """The virtual time, as a time of day."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Due:
        """Have `callback` called when time reaches `when`."""
        due = _Due(callback)
        heappush(self._due, (when, next(self._ties), due))
        return due

    @property
    def next_due(self) -> float | None:
        """When the next call is due, if any is."""
        while self._due and self._due[0][2].callback is None:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def advance_nowait(self, seconds: float) -> None:
        """Let time pass, calling what comes due, in order; tasks do not get a turn in between."""
        until = self._now + seconds
        while (when := self.next_due) is not None and when <= until:
            self._fire(when)
        self._now = max(self._now, until)

    async def advance(self, seconds: float) -> None:
        """Let time pass; after each call that came due, and at the end, everything that can run runs."""
        until = self._now + seconds
        await settle()
        while (when := self.next_due) is not None and when <= until:
            self._fire(when)
            await settle()
        self._now = max(self._now, until)
        await settle()

    async def run_until(self, done: asyncio.Future[object]) -> None:
        """Let time pass from one due call to the next until `done`.

        RuntimeError if nothing is due any more.
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
        due = heappop(self._due)[2]
        callback, due.callback = due.callback, None
        if callback is not None:
            callback()


async def settle(turns: int = 50) -> None:
    """Give everything that can run a number of turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)

"""Calls into a loop from other threads: one wake-up serves all that come meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable


class Bell:
    """What `loop.call_soon_threadsafe` does, at a third of the cost: that is a write for every call, and two reads and
    an exception to hear of it.

    Any thread may ring; the rest is the loop's thread's.
    """  # noqa: D205 - one thought

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen on `loop`."""
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._rung = False
        self._closed = False
        self._ear, self._hammer = _make()
        loop.add_reader(self._ear, self._wake)

    def ring(self, call: Callable[..., object], *args: object) -> None:
        """Have `call` called on the loop, after all that were before it; RuntimeError if nobody listens any more."""
        if self._closed or self._loop.is_closed():
            raise RuntimeError("the loop is closed")
        self._calls.append((call, args))
        if not self._rung:
            self._rung = True
            os.write(self._hammer, b"\1\0\0\0\0\0\0\0")

    def hear(self) -> None:
        """Call all that were rung for; what one of them raises is the loop's to tell, as everywhere."""
        while self._calls:
            call, args = self._calls.popleft()
            try:
                call(*args)
            except Exception as error:  # noqa: BLE001
                self._loop.call_exception_handler({"message": f"{call!r} raised", "exception": error})

    def close(self) -> None:
        """Hear the last, and listen no more; whoever rings must have ended."""
        self.hear()
        self._closed = True
        self._loop.remove_reader(self._ear)
        for end in {self._ear, self._hammer}:
            os.close(end)

    def _wake(self) -> None:
        os.read(self._ear, 4096)
        self._rung = False  # before the calls are looked at: who rings from now on may come too late for that
        self.hear()


def _make() -> tuple[int, int]:
    """Where to listen and where to write; a counter of Linux is both, a pipe does elsewhere."""
    if hasattr(os, "eventfd"):
        both = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return both, both
    ear, hammer = os.pipe()
    os.set_blocking(ear, False)
    os.set_blocking(hammer, False)
    return ear, hammer

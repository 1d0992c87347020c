"""Blocking work beside the loop, in a thread of its own that is always waited for: cancelled, it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from abreast.worktrees.errors import Interrupted

T = TypeVar("T")


class StopRequest:
    """Tells blocking work that nobody wants its result any more."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._calls: list[Callable[[], object]] = []

    def ask(self) -> None:
        """Ask for the end; who is `calling` is called, once."""
        with self._lock:
            self._asked.set()
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def check(self) -> None:
        """Raise Interrupted if the end was asked for."""
        if self._asked.is_set():
            raise Interrupted("it was asked to stop")

    def pause(self, seconds: float) -> None:
        """Block this thread so long, or until the end is asked for."""
        self._asked.wait(seconds)
        self.check()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], object]) -> Iterator[None]:
        """Have `call` made, from another thread, if the end is asked for within this block."""
        with self._lock:
            self.check()
            self._calls.append(call)
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):  # it has been called
                self._calls.remove(call)


async def aside(work: Callable[[StopRequest], T]) -> T:
    """Call `work` in a daemon thread.

    Returns or raises only when it has ended, however often this is cancelled.
    """
    loop = asyncio.get_running_loop()
    stop = StopRequest()
    results: list[T] = []
    errors: list[BaseException] = []
    ended = asyncio.Event()

    def serve() -> None:
        try:
            results.append(work(stop))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            errors.append(error)
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waited
            loop.call_soon_threadsafe(ended.set)

    thread = threading.Thread(target=serve, name="abreast-worktrees", daemon=True)
    thread.start()
    cancelled: asyncio.CancelledError | None = None
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            cancelled = error
            stop.ask()
    thread.join()
    if cancelled is not None:
        raise cancelled
    if errors:
        raise errors[0]
    return results[0]

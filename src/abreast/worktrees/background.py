"""Blocking work in a thread outside of the event loop.

The caller always waits until the thread has ended; cancellation asks the work to stop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from abreast.worktrees.errors import Interrupted

T = TypeVar("T")


class StopRequest:
    """Lets another thread ask blocking work to stop, as its result is no longer needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested = threading.Event()
        self._calls: list[Callable[[], object]] = []

    def ask(self) -> None:
        """Request the stop, and make the calls registered by `calling`, each once."""
        with self._lock:
            self._requested.set()
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def check(self) -> None:
        """Raise Interrupted if a stop was requested."""
        if self._requested.is_set():
            raise Interrupted("it was asked to stop")

    def pause(self, seconds: float) -> None:
        """Block this thread for so many seconds, or until a stop is requested; then Interrupted."""
        self._requested.wait(seconds)
        self.check()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], object]) -> Iterator[None]:
        """Make `call`, from another thread, if a stop is requested within this block."""
        with self._lock:
            self.check()
            self._calls.append(call)
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):  # it has been called
                self._calls.remove(call)


async def run_in_thread(work: Callable[[StopRequest], T]) -> T:
    """Call `work` in a daemon thread, and wait for it.

    Returns or raises only when `work` has ended, however often this is cancelled.
    """
    stop = StopRequest()
    future: Future[T] = Future()

    def run_work() -> None:
        try:
            future.set_result(work(stop))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)

    ended = asyncio.wrap_future(future)
    thread = threading.Thread(target=run_work, name="abreast-worktrees", daemon=True)
    thread.start()
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError as error:
            cancelled = error
            stop.ask()
    thread.join()
    if cancelled is not None:
        ended.exception()  # the cancellation is raised instead
        raise cancelled
    return ended.result()

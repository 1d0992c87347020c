"""Work in this process: coroutines as tasks of the loop, plain functions in daemon threads of our own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from abreast.executors.port import BoundCall, Carries

T = TypeVar("T")
R = TypeVar("R")


def is_async(fn: Callable[..., object]) -> bool:
    """Whether calling `fn` gives a coroutine: an `async def`, a partial of one, or an object whose call is one."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)
    )


class LocalExecutor:
    """The default: nothing leaves this process."""

    carries = Carries(closures=True, contextvars=True, exceptions=True)

    def bind(self, fn: Callable[[T], Awaitable[R] | R], width: int) -> BoundCall[T, R]:  # noqa: ARG002 - threads come as needed
        """A coroutine function is called as it is; any other in threads."""
        return _Tasks(fn) if is_async(fn) else Crew(fn)


class _Tasks(Generic[T, R]):
    """A coroutine function: the driver's own task does the work."""

    def __init__(self, fn: Callable[[T], Any]) -> None:
        self.async_call: Callable[[T], Awaitable[R]] = fn

    async def close(self, grace: float) -> list[str]:  # noqa: ARG002 - tasks are ended by the driver
        """Nothing to end."""
        return []


class _Job(Generic[T, R]):
    """One call on its way to a thread and back."""

    __slots__ = ("answer", "context", "error", "value", "worth")

    def __init__(self, value: T, answer: asyncio.Future[R]) -> None:
        self.value = value
        self.answer = answer
        self.context = contextvars.copy_context()
        self.worth: Any = None
        self.error: BaseException | None = None


class Crew(Generic[T, R]):
    """Daemon threads for one map's plain function: as many as items execute at once, each used again.

    They are not a shared pool, so a map inside an item can't wait for a thread that its own parent
    occupies; and they are daemons, so a call that never returns can't keep the process from ending.
    """

    def __init__(self, fn: Callable[[T], Any]) -> None:
        """No thread yet; they start when calls come."""
        self._fn = fn
        self._jobs: SimpleQueue[_Job[T, R] | None] = SimpleQueue()
        self._finished: deque[_Job[T, R]] = deque()
        self._lock = threading.Lock()
        self._posted = False
        self._idle = 0
        self._threads: dict[threading.Thread, _Job[T, R] | None] = {}
        self._gone: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def async_call(self, value: T) -> R:
        """Call the function in a thread, in a copy of the awaiting task's context."""
        answer: asyncio.Future[R] = self._loop.create_future()
        job = _Job(value, answer)
        with self._lock:
            spare = self._idle > 0
            if spare:
                self._idle -= 1
        if spare:
            self._jobs.put(job)
        else:
            self._hire(job)
        worth = await answer
        # A plain function may still return an awaitable, as `lambda x: fetch(x)` does.
        return await worth if inspect.isawaitable(worth) else worth

    async def close(self, grace: float) -> list[str]:
        """Send the threads home; those still busy after `grace` seconds are named."""
        self._gone = self._loop.create_future()
        for _ in self._threads:
            self._jobs.put(None)
        if self._threads:
            await asyncio.wait([self._gone], timeout=grace)
        return [
            f"{thread.name} ({job.value!r:.80})"
            for thread, job in self._threads.items()
            if job is not None
        ]

    def _hire(self, job: _Job[T, R]) -> None:
        name = f"abreast-{getattr(self._fn, '__name__', 'call')}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(job,), name=name, daemon=True)
        self._threads[thread] = job
        thread.start()

    def _serve(self, job: _Job[T, R] | None) -> None:
        me = threading.current_thread()
        while job is not None:
            if not job.answer.cancelled():  # given up before it began: don't begin
                self._threads[me] = job
                try:
                    job.worth = job.context.run(self._fn, job.value)
                except BaseException as error:  # noqa: BLE001 - carried to the awaiting task, whatever it is
                    job.error = error
                self._threads[me] = None
            with self._lock:
                self._idle += 1
            self._post(job)
            job = self._jobs.get()
        self._tell(self._left, me)

    def _left(self, thread: threading.Thread) -> None:
        thread.join()
        del self._threads[thread]
        if not self._threads and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _post(self, job: _Job[T, R]) -> None:
        """Hand a finished call to the loop; one wake-up serves all that finish meanwhile."""
        self._finished.append(job)
        with self._lock:
            posted, self._posted = self._posted, True
        if not posted:
            self._tell(self._collect)

    def _tell(self, call: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: so is everyone who waited
            self._loop.call_soon_threadsafe(call, *args)

    def _collect(self) -> None:
        with self._lock:
            self._posted = False
        while self._finished:
            job = self._finished.popleft()
            if job.answer.done():
                continue
            if job.error is not None:
                job.answer.set_exception(_carried(job.error))
            else:
                job.answer.set_result(job.worth)


def _carried(error: BaseException) -> BaseException:
    """StopIteration can't be put into a future; everything else can, as itself."""
    if isinstance(error, StopIteration):
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error

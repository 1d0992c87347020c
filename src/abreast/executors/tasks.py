"""The local executor: coroutines run as tasks of the loop, plain functions in daemon threads."""

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

from abreast.executors.port import BoundCall, Capabilities

T = TypeVar("T")
R = TypeVar("R")


def is_async(fn: Callable[..., object]) -> bool:
    """Whether calling `fn` gives a coroutine.

    True for an `async def`, a partial of one, or an object whose `__call__` is one.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - the method is inspected, not tested for
    )


class LocalExecutor:
    """The default: nothing leaves this process."""

    carries = Capabilities(closures=True, contextvars=True, exceptions=True)

    def bind(
        self,
        fn: Callable[[T], Awaitable[R] | R],
        width: int,  # noqa: ARG002 - part of the port; threads are started on demand
    ) -> BoundCall[T, R]:
        """Bind a coroutine function as it is, any other function to threads."""
        return _Tasks(fn) if is_async(fn) else ThreadGroup(fn)


class _Tasks(Generic[T, R]):
    """A coroutine function: the driver's own task does the work."""

    def __init__(self, fn: Callable[[T], Any]) -> None:
        self.async_call: Callable[[T], Awaitable[R]] = fn

    async def close(self, grace: float) -> list[str]:  # noqa: ARG002 - tasks are ended by the driver
        """Nothing to end."""
        return []


class _Job(Generic[T, R]):
    __slots__ = ("answer", "context", "error", "result", "value")

    def __init__(self, value: T, answer: asyncio.Future[R]) -> None:
        self.value = value
        self.answer = answer
        self.context = contextvars.copy_context()
        self.result: Any = None
        self.error: BaseException | None = None


class ThreadGroup(Generic[T, R]):
    """Daemon threads for one map's plain function: one per item that executes at once, reused.

    They are not a shared pool, so a map inside an item can't wait for a thread that its own parent
    occupies; and they are daemons, so a call that never returns can't keep the process from ending.
    """

    def __init__(self, fn: Callable[[T], Any]) -> None:
        self._fn = fn
        self._jobs: SimpleQueue[_Job[T, R] | None] = SimpleQueue()
        self._finished: deque[_Job[T, R]] = deque()
        self._lock = threading.Lock()
        self._wakeup_posted = False
        self._idle = 0
        self._threads: dict[threading.Thread, _Job[T, R] | None] = {}
        self._all_ended: asyncio.Future[None] | None = None
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
            self._start_thread(job)
        result = await answer
        # A plain function may still return an awaitable, as `lambda x: fetch(x)` does.
        return await result if inspect.isawaitable(result) else result

    async def close(self, grace: float) -> list[str]:
        """End the threads; return the names of those still busy after `grace` seconds."""
        self._all_ended = self._loop.create_future()
        for _ in self._threads:
            self._jobs.put(None)
        if self._threads:
            await asyncio.wait([self._all_ended], timeout=grace)
        return [
            f"{thread.name} ({job.value!r:.80})"
            for thread, job in self._threads.items()
            if job is not None
        ]

    def _start_thread(self, job: _Job[T, R]) -> None:
        name = f"abreast-{getattr(self._fn, '__name__', 'call')}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(job,), name=name, daemon=True)
        self._threads[thread] = job
        thread.start()

    def _serve(self, job: _Job[T, R] | None) -> None:
        this_thread = threading.current_thread()
        while job is not None:
            if not job.answer.cancelled():  # cancelled before it began: it isn't begun
                self._threads[this_thread] = job
                try:
                    job.result = job.context.run(self._fn, job.value)
                except BaseException as error:  # noqa: BLE001 - raised in the awaiting task
                    job.error = error
                self._threads[this_thread] = None
            with self._lock:
                self._idle += 1
            self._post(job)
            job = self._jobs.get()
        self._call_in_loop(self._remove_thread, this_thread)

    def _remove_thread(self, thread: threading.Thread) -> None:
        thread.join()
        del self._threads[thread]
        if not self._threads and self._all_ended is not None and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _post(self, job: _Job[T, R]) -> None:
        """Pass a finished call to the loop; one wake-up serves all that finish meanwhile."""
        self._finished.append(job)
        with self._lock:
            posted, self._wakeup_posted = self._wakeup_posted, True
        if not posted:
            self._call_in_loop(self._collect)

    def _call_in_loop(self, call: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits any more
            self._loop.call_soon_threadsafe(call, *args)

    def _collect(self) -> None:
        with self._lock:
            self._wakeup_posted = False
        while self._finished:
            job = self._finished.popleft()
            if job.answer.done():
                continue
            if job.error is not None:
                job.answer.set_exception(_settable(job.error))
            else:
                job.answer.set_result(job.result)


def _settable(error: BaseException) -> BaseException:
    """Wrap StopIteration, which can't be set on a future; return any other error as it is."""
    if isinstance(error, StopIteration):
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error

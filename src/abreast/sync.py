"""The verbs for code that isn't async: `map` and the jobs, each with the same arguments."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from abreast.assembly.names import open_run
from abreast.assembly.verbs.sample import sample
from abreast.core.errors import WouldBlock
from abreast.core.outcome import Outcome
from abreast.run.current import current_item
from abreast.run.map.options import check_options
from abreast.run.map.outcomes import Map
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.jobs.sample.results import SampleResult

T = TypeVar("T")

INTERRUPT_GRACE = 2.0  # seconds that an interrupted caller waits for its cancelled work
BATCH_OUTCOMES = 256  # most outcomes passed from the loop's thread to the caller's at once


def map(
    fn: Callable[[T], Any], items: Iterable[T], *, width: int, **options: Any
) -> Iterator[Outcome[Any]]:
    """Call `fn` with each item, at most `width` at once; an iterator of outcomes in item order.

        outcomes = abreast.map(lambda x: x * x, range(5), width=3)
        [outcome.value for outcome in outcomes]      # [0, 1, 4, 9, 16]

    `fn` may be a plain function (it runs in threads) or `async def`. It takes all options of
    `run.map`, and `store=`, `lanes=`, `budget=`, `seed=`, `resume=`, `types=` of `open_run`. The
    run is named after the map. Inside an item (a plain function's) it becomes a map beneath that
    item. Items are read in a thread of abreast's own. Leaving the loop early cancels the items in
    work.

    Raises ValueError or TypeError at once for invalid options; `WouldBlock` inside an `async def`
    item, where it would stop the loop that it waits for: use `async for ... in
    abreast.current().run.map(...)` there.
    """
    run_options = {name: options.pop(name) for name in _RUN_OPTIONS if name in options}
    checked = check_options(fn, stored=run_options.get("store") is not None, width=width, **options)
    item = current_item()
    if item is not None:
        return _map_inside_item(item.run, fn, items, run_options, {"width": width, **options})
    run = open_run(run_options.pop("name", checked.name), **run_options)
    return _Outcomes(
        _background.loop(), run, lambda opened: opened.map(fn, items, width=width, **options)
    )


def sample_sync(prompt: str | None = None, **options: Any) -> SampleResult:
    """Call `abreast.sample` from code that isn't async, and wait for its result."""
    result: SampleResult = _Call(
        _background.loop(), sample(prompt, **options), contextvars.copy_context()
    ).wait()
    return result


_RUN_OPTIONS = ("store", "lanes", "budget", "seed", "resume", "hooks", "tags", "redact", "types")


def _map_inside_item(
    run: Run,
    fn: Callable[..., Any],
    items: Iterable[Any],
    run_options: dict[str, Any],
    options: dict[str, Any],
) -> Iterator[Outcome[Any]]:
    if run_options.keys() - {"lanes", "budget"}:
        raise TypeError(
            f"inside an item, {', '.join(sorted(run_options))} are the run's own "
            "and can't be given again"
        )
    loop = run.context.loop
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        raise WouldBlock(
            "abreast.map waits, which would stop the loop it runs on; inside an async item use "
            "`async for outcome in abreast.current().run.map(...)`"
        )
    return _Outcomes(loop, None, lambda _: run.map(fn, items, **options))


class _Outcomes:
    """An iterator over outcomes that come from an event loop in another thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        run: Run | None,
        start: Callable[[Any], Map[Any, Any]],
    ) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._source = _batches(run, start)
        self._ready: deque[Outcome[Any]] = deque()
        self._over = False

    def __iter__(self) -> Iterator[Outcome[Any]]:
        return self

    def __next__(self) -> Outcome[Any]:
        while not self._ready:
            if self._over:
                raise StopIteration
            try:
                self._ready.extend(self._call(anext(self._source)))
            except StopAsyncIteration:
                self._over = True
            except BaseException:
                self._over = True
                raise
        return self._ready.popleft()

    def close(self) -> None:
        """Cancel the items in work and wait until they have ended."""
        self._ready.clear()
        if not self._over:
            self._over = True
            self._call(self._source.aclose())

    def __del__(self) -> None:
        if not self._over and not self._loop.is_closed():
            self._over = True
            _Call(self._loop, self._source.aclose(), self._context)

    def _call(self, work: Awaitable[Any]) -> Any:
        return _Call(self._loop, work, self._context).wait()


class _Call:
    """An awaitable that runs on a loop in another thread.

    The calling thread waits for it, and can still be interrupted.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, work: Awaitable[Any], context: contextvars.Context
    ) -> None:
        self._loop = loop
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start, work, context.copy())

    def _start(self, work: Awaitable[Any], context: contextvars.Context) -> None:
        self._task = self._loop.create_task(self._run(work), context=context)

    async def _run(self, work: Awaitable[Any]) -> None:
        try:
            self._value = await work
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> Any:
        """Wait for the value and return it, or raise its error.

        An interrupt cancels the work, waits INTERRUPT_GRACE seconds for its end, and is raised.
        """
        try:
            self._done.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
            self._done.wait(INTERRUPT_GRACE)
            raise
        if self._error is not None:
            raise self._error
        return self._value


async def _batches(
    run: Run | None, start: Callable[[Any], Map[Any, Any]]
) -> AsyncGenerator[list[Outcome[Any]], None]:
    """Yield outcomes in lists: all that are ready go to the caller's thread together."""
    async with (
        contextlib.nullcontext() if run is None else run as opened,
        start(opened) as outcomes,
    ):
        async for batch in outcomes.batches(BATCH_OUTCOMES):
            yield batch


class _Background:
    """One event loop in a daemon thread, for all calls of code that isn't async.

    They share it, so that they can share limits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop; it is started at the first call, and again in a forked child."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(
                    target=self._loop.run_forever, name="abreast-loop", daemon=True
                ).start()
            return self._loop


_background = _Background()

"""The verbs for code that isn't async: `map`, and a twin with the same arguments for each job.

    result = abreast.sync.sample("Name a colour.", model="local/smollm2")

They wait for an event loop in a thread of abreast's own. So they can be called anywhere: in a plain
script, in a notebook, and where another loop runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from abreast.assembly.names import open_run
from abreast.assembly.verbs.matrix import matrix as _matrix
from abreast.assembly.verbs.optimize import optimize as _optimize
from abreast.assembly.verbs.plan import plan as _plan
from abreast.assembly.verbs.run_options import refuse_run_options
from abreast.assembly.verbs.sample import sample as _sample
from abreast.assembly.verbs.workflow import workflow as _workflow
from abreast.core.errors import WouldBlock
from abreast.core.outcome import Outcome
from abreast.run.current import current_item
from abreast.run.map.options import check_options
from abreast.run.map.outcomes import Map
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.core.halting import OnError, Until
    from abreast.core.item import Item
    from abreast.core.window import Order
    from abreast.executors.port import Executor
    from abreast.limits.budget import Budget
    from abreast.limits.lane import Holding, LaneLimits
    from abreast.run.map.options import Effect, OnChange
    from abreast.run.retry import Retry
    from abreast.run.run import Resume
    from abreast.store.port import Store

__all__ = ["map", "matrix", "optimize", "plan", "sample", "workflow"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

INTERRUPT_GRACE = 2.0  # seconds that an interrupted caller waits for its cancelled work
BATCH_OUTCOMES = 256  # most outcomes passed from the loop's thread to the caller's at once


@overload
def map(
    fn: Callable[[T], Awaitable[R]],
    items: Iterable[T | Item[T]],
    *,
    width: int,
    name: str | None = None,
    span: int | None = None,
    order: Order = "item",
    until: Until[R] = None,
    on_error: OnError = "collect",
    lane: str | Callable[[T], str] | None = None,
    key: Callable[[T], str] | None = None,
    retry: int | Retry | None = None,
    timeout: float | None = None,
    effect: Effect = "pure",
    hold: Holding = None,
    executor: str | Executor | None = None,
    on_change: OnChange = "refuse",
    store: str | PathLike[str] | Store | None = None,
    lanes: Mapping[str, LaneLimits] | None = None,
    budget: Budget | str | None = None,
    seed: int | None = None,
    resume: Resume = "auto",
    hooks: Sequence[object] = (),
    tags: Sequence[str] = (),
    redact: Callable[[str, object], object] | None = None,
    types: Sequence[type] = (),
) -> Iterator[Outcome[R]]: ...


@overload
def map(
    fn: Callable[[T], R],
    items: Iterable[T | Item[T]],
    *,
    width: int,
    name: str | None = None,
    span: int | None = None,
    order: Order = "item",
    until: Until[R] = None,
    on_error: OnError = "collect",
    lane: str | Callable[[T], str] | None = None,
    key: Callable[[T], str] | None = None,
    retry: int | Retry | None = None,
    timeout: float | None = None,
    effect: Effect = "pure",
    hold: Holding = None,
    executor: str | Executor | None = None,
    on_change: OnChange = "refuse",
    store: str | PathLike[str] | Store | None = None,
    lanes: Mapping[str, LaneLimits] | None = None,
    budget: Budget | str | None = None,
    seed: int | None = None,
    resume: Resume = "auto",
    hooks: Sequence[object] = (),
    tags: Sequence[str] = (),
    redact: Callable[[str, object], object] | None = None,
    types: Sequence[type] = (),
) -> Iterator[Outcome[R]]: ...


def map(
    fn: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    width: int,
    name: str | None = None,
    span: int | None = None,
    order: Order = "item",
    until: Until[Any] = None,
    on_error: OnError = "collect",
    lane: str | Callable[[Any], str] | None = None,
    key: Callable[[Any], str] | None = None,
    retry: int | Retry | None = None,
    timeout: float | None = None,
    effect: Effect = "pure",
    hold: Holding = None,
    executor: str | Executor | None = None,
    on_change: OnChange = "refuse",
    store: str | PathLike[str] | Store | None = None,
    lanes: Mapping[str, LaneLimits] | None = None,
    budget: Budget | str | None = None,
    seed: int | None = None,
    resume: Resume = "auto",
    hooks: Sequence[object] = (),
    tags: Sequence[str] = (),
    redact: Callable[[str, object], object] | None = None,
    types: Sequence[type] = (),
) -> Iterator[Outcome[Any]]:
    """Call `fn` with each item, at most `width` at once; an iterator of outcomes in item order.

        outcomes = abreast.map(lambda x: x * x, range(5), width=3)
        [outcome.value for outcome in outcomes]      # [0, 1, 4, 9, 16]

    The run is named after the map. Inside an item (a plain function's) it becomes a map beneath
    that item, or with `lanes` or `budget` a scope with a map; `store`, `seed`, `resume`, `hooks`,
    `tags`, `redact` and `types` are then the run's own, and raise a TypeError. Items are read in a
    thread of abreast's own. Leaving the loop early cancels the items in work.

    Args:
        fn: a plain function (it runs in threads) or `async def`.
        items: anything iterable, also endless; it is read lazily. An `Item` in it gives its value
            to `fn`, with a key and a lane of its own.
        width: how many items execute at once.
        name: the map's part of the path; by default the function's name.
        span: how far to run ahead of the oldest outcome not yet taken; at least `width`.
        order: `"item"`, or `"completion"` for outcomes as they come (which lets timing decide).
        until: stop after that many successes, or at the first outcome for which this function is
            true.
        on_error: `"collect"` failures and go on; `"halt"` after the first one in item order; or
            `"raise"` it there.
        lane: the lane whose limits an item holds while it executes: a name, or a function of the
            item.
        key: a function of the item that gives its stable name; by default its position.
        retry: how many further attempts a failing item gets, or a `Retry`.
        timeout: seconds an attempt may take.
        effect: `"once"` for work that must not be repeated after a crash, even if it is not known
            whether it was done.
        hold: further lanes to hold: a name, names, or weights such as `{"machine": "all"}`.
        executor: where to call `fn`: `"local"`, `"process"`, `"ray"`, or an Executor.
        on_change: what to do on resume with an item whose value is not the one recorded under its
            key: `"refuse"` it with `ItemChanged`, or `"rerun"` it.
        store: where to record outcomes: a path, a URL or a Store; None for memory only.
        lanes: names for limits: `{"openai": Slots(8)}`.
        budget: a cap for everything in it: `Budget(requests=500)` or `"500req,20usd,10min"`.
        seed: makes its seeds repeatable; drawn and recorded if None.
        resume: whether to go on with an earlier run in the store, as in `open_run`.
        hooks: functions that get every event, and objects that may change numbers.
        tags: words to find the run by.
        redact: called with (path, value) before a value is written; what it returns is written.
        types: your classes that recorded values may have, as in `open_run`.

    Raises ValueError or TypeError at once for invalid options; `WouldBlock` inside an `async def`
    item, where it would stop the loop that it waits for: use `async for ... in
    abreast.current().run.map(...)` there.
    """
    options: dict[str, Any] = {
        "width": width,
        "name": name,
        "span": span,
        "order": order,
        "until": until,
        "on_error": on_error,
        "lane": lane,
        "key": key,
        "retry": retry,
        "timeout": timeout,
        "effect": effect,
        "hold": hold,
        "executor": executor,
        "on_change": on_change,
    }
    checked = check_options(fn, stored=store is not None, **options)
    run_options: dict[str, Any] = {
        "store": store,
        "seed": seed,
        "resume": resume,
        "hooks": hooks,
        "tags": tags,
        "redact": redact,
        "types": types,
    }
    item = current_item()
    if item is not None:
        refuse_run_options(run_options)
        scope = item.run
        _check_not_running(
            scope.context.loop,
            "abreast.map waits, which would stop the loop it runs on; inside an async item use "
            "`async for outcome in abreast.current().run.map(...)`",
        )
        if not lanes and budget is None:
            return _Outcomes(scope.context.loop, None, lambda _: scope.map(fn, items, **options))
        child = scope.child(checked.name, lanes=lanes, budget=budget)
        return _Outcomes(scope.context.loop, child, lambda opened: opened.map(fn, items, **options))
    run = open_run(checked.name, lanes=lanes, budget=budget, **run_options)
    return _Outcomes(_background.loop(), run, lambda opened: opened.map(fn, items, **options))


def _waiting(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Return the blocking twin of an async verb: the same arguments, and the result itself.

    It runs where its run does: on the loop of the run that is given as `run`, or of the current
    item, else on the background loop. The calling thread waits, whether a loop of its own runs or
    not.
    """

    @wraps(verb)
    def twin(*args: P.args, **options: P.kwargs) -> R:
        run, item = options.get("run"), current_item()
        within = run if isinstance(run, Run) else item.run if item is not None else None
        loop = _background.loop() if within is None else within.context.loop
        _check_not_running(
            loop,
            f"abreast.sync.{verb.__name__} waits, which would stop the loop it runs on; "
            f"use `await abreast.{verb.__name__}(...)` there",
        )
        result: R = _Call(loop, verb(*args, **options), contextvars.copy_context()).wait()
        return result

    twin.__module__ = __name__
    twin.__doc__ = f"""Call `abreast.{verb.__name__}` from code that isn't async, and wait for it.

    Raises `WouldBlock` where that would stop the loop it waits for: in an `async def` item.
    All else is as with `await abreast.{verb.__name__}(...)`:

    {verb.__doc__}"""
    return twin


matrix = _waiting(_matrix)
optimize = _waiting(_optimize)
plan = _waiting(_plan)
sample = _waiting(_sample)
workflow = _waiting(_workflow)


def _check_not_running(loop: asyncio.AbstractEventLoop, message: str) -> None:
    """Raise WouldBlock with this message if the loop runs in this thread."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is loop:
        raise WouldBlock(message)


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

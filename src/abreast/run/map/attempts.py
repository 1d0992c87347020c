"""Attempts: execute an item, and decide what the end of an attempt means for it."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

from abreast.core.errors import BudgetSpent, LaneParked, Paused, Stopped, TimedOut
from abreast.core.outcome import NO_USAGE, Cancelled, Done, Failed, Outcome, Times
from abreast.run.item_state import CURRENT, ItemState, MapPlace
from abreast.run.map.options import MapOptions
from abreast.run.map.release import Barrier


class MapTasks:
    """Starts the tasks of one map, and tracks those that are not the task of an open item."""

    __slots__ = ("_context", "_loop", "on_error", "tracked")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_error: Callable[[BaseException], None]
    ) -> None:
        """Tasks start in copies of the caller's context; `on_error` gets errors of tracked ones."""
        self._context = contextvars.copy_context()
        self._loop = loop
        self.on_error = on_error
        self.tracked: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task.

        Not by loop.create_task, whose wrapper takes half as long as creating the task itself.
        """
        return asyncio.Task(coroutine, loop=self._loop, context=self._context.copy())

    def track(self, task: asyncio.Task[None]) -> None:
        """Track a task: the map waits for its end and raises its error."""
        self.tracked.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tracked.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_error(error)


class Attempts:
    """Executes the items of one map.

    The end of each attempt is reported as the item's outcome, or as the barrier at which the map
    ends. A failure is no decision against another attempt: see `delay`.
    """

    __slots__ = ("_call", "_context", "_ended", "_now", "_options", "_place", "_tasks")

    def __init__(
        self,
        call: Callable[[Any], Awaitable[Any]],
        options: MapOptions,
        place: MapPlace,
        tasks: MapTasks,
        ended: Callable[[ItemState, Outcome[Any] | Barrier], None],
    ) -> None:
        """`call` executes an item's value; `ended` is called at the end of each attempt."""
        self._call = call
        self._options = options
        self._place = place
        self._context = place.context
        self._now = place.context.clock.now
        self._tasks = tasks
        self._ended = ended

    def start(self, item: ItemState) -> None:
        """Start an attempt in a task of its own."""
        timeout = self._options.timeout
        item.started = self._now()
        item.task = self._tasks.start(self._execute(item))
        if timeout is not None:
            item.timer = self._context.clock.call_at(
                item.started + timeout, lambda: self._time_out(item)
            )

    def _time_out(self, item: ItemState) -> None:
        if item.task is not None and item.stop_reason is None:
            self.cancel(item, "timeout")

    def cancel(self, item: ItemState, reason: str) -> None:
        """Cancel an attempt.

        A task that is cancelled before its first step never runs, so its end is handled here.
        """
        item.stop_reason = reason
        task: Any = item.task
        if task is not None:
            not_started = getcoroutinestate(task.get_coro()) == CORO_CREATED
            task.cancel()
            if not_started:
                self._tasks.track(task)
                self._end(item, None, asyncio.CancelledError())

    async def _execute(self, item: ItemState) -> None:
        CURRENT.set(item)
        error: BaseException | None = None
        value: Any = None
        try:
            value = await self._call(item.value)
        except (KeyboardInterrupt, GeneratorExit):
            raise  # not the item's error: the process or the task is being ended
        except BaseException as raised:  # noqa: BLE001 - all others become outcomes
            error = raised
        try:
            while item.own_tasks or item.scope is not None:
                try:
                    await self._end_beneath(item)
                    break
                except asyncio.CancelledError:
                    pass  # it ends anyway; the work beneath it still gets its grace period
            self._end(item, value, error)
        except Exception as bug:  # noqa: BLE001 - a bug of abreast must reach the caller
            self._tasks.on_error(bug)

    async def _end_beneath(self, item: ItemState) -> None:
        """End what the item's call left open beneath it."""
        if item.own_tasks:
            await self._cancel_own_tasks(item)
        if item.scope is not None:
            await item.scope.settle_maps(self._context.grace)

    async def _cancel_own_tasks(self, item: ItemState) -> None:
        """Cancel tasks that the item's code started and left in a call.

        `asyncio.gather`, for example, leaves such tasks when one of them fails.
        """
        while own_tasks := [task for task in item.own_tasks or () if not task.done()]:
            for task in own_tasks:
                task.cancel()
            _, left = await asyncio.wait(own_tasks, timeout=self._context.grace)
            if left:
                return

    def _end(self, item: ItemState, value: Any, error: BaseException | None) -> None:
        now = self._now()
        item.task = None
        if item.timer is not None:
            item.timer.cancel()
            item.timer = None
        if item.holds:
            self._context.gate.give(item.holds)
            item.holds = ()
        started, admitted = item.started, item.admitted
        if error is None and item.attempt == 1:
            times: Times = (0.0, started - admitted, 0.0, now - started)
            usage = item.usage or NO_USAGE
            self._ended(item, Done(item.index, item.key, value, item.lane, usage, times))
            return
        if isinstance(error, Stopped) and self._ends_the_map(error):
            self._ended(item, Barrier(error))
            return
        service = item.service = (*item.service, now - started)
        times = (
            0.0,
            max(0.0, now - admitted - sum(service) - item.backoff),
            item.backoff,
            *service,
        )
        self._ended(item, self._outcome(item, value, error, times))

    def _ends_the_map(self, error: Stopped) -> bool:
        """Whether the error ends the map instead of failing this item.

        That is so if the map waits for a person, or if the spent budget is shared by all items.
        """
        if isinstance(error, BudgetSpent) and not isinstance(error, LaneParked):
            return error.budget in self._place.scope.lanes.budgets
        return isinstance(error, (LaneParked, Paused))

    def _outcome(
        self, item: ItemState, value: Any, error: BaseException | None, times: Times
    ) -> Outcome[Any]:
        usage = item.usage or NO_USAGE
        if error is None:
            return Done(item.index, item.key, value, item.lane, usage, times)
        if item.stop_reason is None:
            return Failed(item.index, item.key, error, item.lane, usage, times)
        if item.stop_reason != "timeout":
            return Cancelled(item.index, item.key, item.stop_reason, item.lane, usage, times)
        timed_out = TimedOut(
            f"{item.path}: attempt {item.attempt} took longer than {self._options.timeout:g} s"
        )
        timed_out.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
        return Failed(item.index, item.key, timed_out, item.lane, usage, times)

    def delay(self, item: ItemState, error: BaseException) -> float | None:
        """Seconds to wait before another attempt after this failure; None if there is none."""
        retry, context = self._options.retry, self._context
        if retry is None:
            return None
        return retry.delay(error, item.attempt, context.seed, context.seeded_part(item.path))

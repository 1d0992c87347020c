"""Attempts: execute an item until it has an outcome, or must wait for its next attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any

from abreast.core.errors import BudgetSpent, LaneParked, Paused, Stopped, TimedOut
from abreast.core.outcome import NO_USAGE, Cancelled, Done, Failed, Outcome, Times
from abreast.run.current import CURRENT, CurrentItem

if TYPE_CHECKING:
    from abreast.run.map.scheduler import Scheduler


class Attempts:
    """Executes the items of one map.

    Each attempt ends with a call of `Scheduler.settled`, `paused` or `stopped_within`.
    """

    def __init__(self, scheduler: Scheduler, call: Callable[[Any], Awaitable[Any]]) -> None:
        """`call` executes an item's value."""
        self._scheduler = scheduler
        self._call = call
        self._now = scheduler.context.clock.now

    def start(self, item: CurrentItem) -> None:
        """Start an attempt; a `once` item first waits until its start is on disk."""
        journal = self._scheduler.journal
        if journal is None:
            self._launch(item)
        elif self._scheduler.options.effect == "once":
            item.starting = True
            journal.started(item, durable=lambda: self._launch(item))
        else:
            journal.started(item)
            self._launch(item)

    def _launch(self, item: CurrentItem) -> None:
        item.starting = False
        scheduler, timeout = self._scheduler, self._scheduler.options.timeout
        if scheduler.is_past_end(item):  # the map ended while its start was being written
            scheduler.abandoned(item)
            return
        item.started = self._now()
        item.task = scheduler.spawn(self._execute(item))
        if timeout is not None:
            item.timer = scheduler.context.clock.call_at(
                item.started + timeout, lambda: self._time_out(item)
            )

    def _time_out(self, item: CurrentItem) -> None:
        if item.task is not None and item.stop_reason is None:
            self.cancel(item, "timeout")

    def cancel(self, item: CurrentItem, reason: str) -> None:
        """Cancel an attempt.

        A task that is cancelled before its first step never runs, so its end is handled here.
        """
        item.stop_reason = reason
        task: Any = item.task
        if task is not None:
            not_started = getcoroutinestate(task.get_coro()) == CORO_CREATED
            task.cancel()
            if not_started:
                self._scheduler.track_task(task)
                self._ended(item, None, asyncio.CancelledError())

    async def _execute(self, item: CurrentItem) -> None:
        """One attempt, in the item's own task and context."""
        CURRENT.set(item)
        error: BaseException | None = None
        value: Any = None
        try:
            value = await self._call(item.value)
        except (KeyboardInterrupt, GeneratorExit):
            raise  # not the item's error: the process or the task is being ended
        except BaseException as raised:  # noqa: BLE001 - all others become outcomes
            error = raised
        await self.conclude(item, value, error)

    async def conclude(self, item: CurrentItem, value: Any, error: BaseException | None) -> None:
        """End what the item's call left open beneath it, then handle the end of the attempt."""
        try:
            while item.own_tasks or item.scope is not None:
                try:
                    await self._end_beneath(item)
                    break
                except asyncio.CancelledError:
                    pass  # it ends anyway; the work beneath it still gets its grace period
            self._ended(item, value, error)
        except Exception as bug:  # noqa: BLE001 - a bug of abreast must reach the caller
            self._scheduler.fail(bug)

    async def _end_beneath(self, item: CurrentItem) -> None:
        if item.own_tasks:
            await self._cancel_own_tasks(item)
        if item.scope is not None:
            await item.scope.settle_maps(self._scheduler.context.grace)

    async def _cancel_own_tasks(self, item: CurrentItem) -> None:
        """Cancel tasks that the item's code started and left in a call.

        `asyncio.gather`, for example, leaves such tasks when one of them fails.
        """
        while own_tasks := [task for task in item.own_tasks or () if not task.done()]:
            for task in own_tasks:
                task.cancel()
            _, left = await asyncio.wait(own_tasks, timeout=self._scheduler.context.grace)
            if left:
                return

    def _ended(self, item: CurrentItem, value: Any, error: BaseException | None) -> None:
        """Handle the end of an attempt: settle the outcome, or schedule another attempt."""
        now = self._now()
        item.task = None
        if item.timer is not None:
            item.timer.cancel()
            item.timer = None
        if item.holds:
            self._scheduler.context.gate.give(item.holds)
            item.holds = ()
        if isinstance(error, Stopped) and self._ends_the_map(error):
            self._scheduler.stopped_within(item, error)
            return
        started, admitted = item.started, item.admitted
        if error is None and item.attempt == 1:
            times: Times = (0.0, started - admitted, 0.0, now - started)
        else:
            service = item.service = (*item.service, now - started)
            if error is not None and self._retries(item, error, now):
                return
            times = (
                0.0,
                max(0.0, now - admitted - sum(service) - item.backoff),
                item.backoff,
                *service,
            )
        self._scheduler.settled(item, self._outcome(item, value, error, times))

    def _ends_the_map(self, error: Stopped) -> bool:
        """Whether the error ends the map instead of failing this item.

        That is so if the map waits for a person, or if the spent budget is shared by all items.
        """
        if isinstance(error, BudgetSpent) and not isinstance(error, LaneParked):
            return error.budget in self._scheduler.run.lanes.budgets
        return isinstance(error, (LaneParked, Paused))

    def _outcome(
        self, item: CurrentItem, value: Any, error: BaseException | None, times: Times
    ) -> Outcome[Any]:
        usage = item.usage or NO_USAGE
        if error is None:
            return Done(item.index, item.key, value, item.lane, usage, times)
        if item.stop_reason is not None and item.stop_reason != "timeout":
            return Cancelled(item.index, item.key, item.stop_reason, item.lane, usage, times)
        return Failed(item.index, item.key, self._cause(item, error), item.lane, usage, times)

    def _cause(self, item: CurrentItem, error: BaseException) -> BaseException:
        """The error as the caller sees it: a cancellation by the attempt's timer is `TimedOut`."""
        if item.stop_reason != "timeout":
            return error
        self._scheduler.timing_causes.add("timeout")
        timeout = self._scheduler.options.timeout
        timed_out = TimedOut(f"{item.path}: attempt {item.attempt} took longer than {timeout:g} s")
        timed_out.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
        return timed_out

    def _retries(self, item: CurrentItem, error: BaseException, now: float) -> bool:
        """Schedule another attempt after this failure; False if there is none."""
        scheduler = self._scheduler
        retry = scheduler.options.retry
        if (
            retry is None
            or scheduler.is_past_end(item)
            or item.stop_reason not in (None, "timeout")
        ):
            return False
        cause = self._cause(item, error)
        delay = retry.delay(
            cause, item.attempt, scheduler.context.seed, scheduler.context.seeded_part(item.path)
        )
        if delay is None:
            return False
        if scheduler.journal is not None:
            scheduler.journal.attempt_failed(item, cause, delay)
        item.stop_reason = None
        item.timer = scheduler.context.clock.call_at(now + delay, lambda: self._retry(item, now))
        scheduler.paused()
        return True

    def _retry(self, item: CurrentItem, since: float) -> None:
        item.timer = None
        item.backoff += self._now() - since
        item.attempt += 1
        item.scope = None  # the failed attempt's scope has ended; the next one opens its own
        self._scheduler.ask(item)

"""Attempts: an item that has what it needs is executed, until it has an outcome or wants to go back in line."""

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

    What comes of each goes to `drive.settled` or `drive.paused`.
    """

    def __init__(self, scheduler: Scheduler, call: Callable[[Any], Awaitable[Any]]) -> None:
        """`call` does an item's work."""
        self._scheduler = scheduler
        self._call = call
        self._now = scheduler.setting.clock.now

    def start(self, item: CurrentItem) -> None:
        """Begin an attempt, as soon as what must be on disk before it is."""
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
        if scheduler.is_past_end(item):  # since its start was being written
            scheduler.abandoned(item)
            return
        item.started = self._now()
        item.task = scheduler.spawn(self._execute(item))
        if timeout is not None:
            item.timer = scheduler.setting.clock.call_at(
                item.started + timeout, lambda: self._time_out(item)
            )

    def _time_out(self, item: CurrentItem) -> None:
        if item.task is not None and item.stop_reason is None:
            self.cancel(item, "timeout")

    def cancel(self, item: CurrentItem, reason: str) -> None:
        """Cancel an attempt. A task cancelled before its first step never runs at all, so its end is noted here."""
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
            raise  # not the item's: somebody wants this process, or this task, to end
        except BaseException as raised:  # noqa: BLE001 - all others become outcomes
            error = raised
        await self.conclude(item, value, error)

    async def conclude(self, item: CurrentItem, value: Any, error: BaseException | None) -> None:
        """The item's call has ended; what it left open beneath it ends now."""
        try:
            while item.own_tasks or item.scope is not None:
                try:
                    await self._end_beneath(item)
                    break
                except asyncio.CancelledError:
                    pass  # it is ending as it is: what ends beneath it has its time all the same
            self._ended(item, value, error)
        except Exception as bug:  # noqa: BLE001 - a fault of ours must reach the caller, not vanish with the task
            self._scheduler.fail(bug)

    async def _end_beneath(self, item: CurrentItem) -> None:
        if item.own_tasks:
            await self._end_strays(item)
        if item.scope is not None:
            await item.scope.settle_maps(self._scheduler.setting.grace)

    async def _end_strays(self, item: CurrentItem) -> None:
        """Calls that the item's own tasks are in the middle of end with it, as `asyncio.gather` would leave them."""
        while own_tasks := [task for task in item.own_tasks or () if not task.done()]:
            for task in own_tasks:
                task.cancel()
            _, left = await asyncio.wait(own_tasks, timeout=self._scheduler.setting.grace)
            if left:
                return

    def _ended(self, item: CurrentItem, value: Any, error: BaseException | None) -> None:
        """An attempt has ended: there is an outcome, or another attempt."""
        now = self._now()
        item.task = None
        if item.timer is not None:
            item.timer.cancel()
            item.timer = None
        if item.holds:
            self._scheduler.setting.gate.give(item.holds)
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
        """Whether it is no failure of this item: somebody is waited for, or what is spent is shared by all items."""
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
        """The error as the caller sees it: a cancellation by our own timer is a `TimedOut`."""
        if item.stop_reason != "timeout":
            return error
        self._scheduler.timing_causes.add("timeout")
        late = TimedOut(
            f"{item.path}: attempt {item.attempt} took longer than {self._scheduler.options.timeout:g} s"
        )
        late.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
        return late

    def _retries(self, item: CurrentItem, error: BaseException, now: float) -> bool:
        """Whether there is another attempt after this failure; if so it is on its way."""
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
            cause, item.attempt, scheduler.setting.seed, scheduler.setting.seeded_part(item.path)
        )
        if delay is None:
            return False
        if scheduler.journal is not None:
            scheduler.journal.attempt_failed(item, cause, delay)
        item.stop_reason = None
        item.timer = scheduler.setting.clock.call_at(now + delay, lambda: self._again(item, now))
        scheduler.paused()
        return True

    def _again(self, item: CurrentItem, since: float) -> None:
        item.timer = None
        item.backoff += self._now() - since
        item.attempt += 1
        item.scope = None  # what the failed attempt opened has ended; the next one opens its own
        self._scheduler.ask(item)

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

    def __init__(self, drive: Scheduler, call: Callable[[Any], Awaitable[Any]]) -> None:
        """`call` does an item's work."""
        self._drive = drive
        self._call = call
        self._now = drive.setting.clock.now

    def start(self, work: CurrentItem) -> None:
        """Begin an attempt, as soon as what must be on disk before it is."""
        book = self._drive.book
        if book is None:
            self._launch(work)
        elif self._drive.options.effect == "once":
            work.starting = True
            book.started(work, durable=lambda: self._launch(work))
        else:
            book.started(work)
            self._launch(work)

    def _launch(self, work: CurrentItem) -> None:
        work.starting = False
        drive, timeout = self._drive, self._drive.options.timeout
        if drive.is_past_end(work):  # since its start was being written
            drive.abandoned(work)
            return
        work.started = self._now()
        work.task = drive.spawn(self._execute(work))
        if timeout is not None:
            work.timer = drive.setting.clock.call_at(
                work.started + timeout, lambda: self._time_out(work)
            )

    def _time_out(self, work: CurrentItem) -> None:
        if work.task is not None and work.stop_reason is None:
            self.cut(work, "timeout")

    def cut(self, work: CurrentItem, reason: str) -> None:
        """Cancel an attempt. A task cancelled before its first step never runs at all, so its end is noted here."""
        work.stop_reason = reason
        task: Any = work.task
        if task is not None:
            unborn = getcoroutinestate(task.get_coro()) == CORO_CREATED
            task.cancel()
            if unborn:
                self._drive.look_after(task)
                self._ended(work, None, asyncio.CancelledError())

    async def _execute(self, work: CurrentItem) -> None:
        """One attempt, in the item's own task and context."""
        CURRENT.set(work)
        error: BaseException | None = None
        value: Any = None
        try:
            value = await self._call(work.value)
        except (KeyboardInterrupt, GeneratorExit):
            raise  # not the item's: somebody wants this process, or this task, to end
        except BaseException as raised:  # noqa: BLE001 - all others become outcomes
            error = raised
        await self.conclude(work, value, error)

    async def conclude(self, work: CurrentItem, value: Any, error: BaseException | None) -> None:
        """The item's call has ended; what it left open beneath it ends now."""
        try:
            while work.strays or work.scope is not None:
                try:
                    await self._end_beneath(work)
                    break
                except asyncio.CancelledError:
                    pass  # it is ending as it is: what ends beneath it has its time all the same
            self._ended(work, value, error)
        except Exception as bug:  # noqa: BLE001 - a fault of ours must reach the caller, not vanish with the task
            self._drive.fail(bug)

    async def _end_beneath(self, work: CurrentItem) -> None:
        if work.strays:
            await self._end_strays(work)
        if work.scope is not None:
            await work.scope.settle_maps(self._drive.setting.grace)

    async def _end_strays(self, work: CurrentItem) -> None:
        """Calls that the item's own tasks are in the middle of end with it, as `asyncio.gather` would leave them."""
        while strays := [task for task in work.strays or () if not task.done()]:
            for task in strays:
                task.cancel()
            _, left = await asyncio.wait(strays, timeout=self._drive.setting.grace)
            if left:
                return

    def _ended(self, work: CurrentItem, value: Any, error: BaseException | None) -> None:
        """An attempt has ended: there is an outcome, or another attempt."""
        now = self._now()
        work.task = None
        if work.timer is not None:
            work.timer.cancel()
            work.timer = None
        if work.holds:
            self._drive.setting.gate.give(work.holds)
            work.holds = ()
        if isinstance(error, Stopped) and self._ends_the_map(error):
            self._drive.stopped_within(work, error)
            return
        started, admitted = work.started, work.admitted
        if error is None and work.attempt == 1:
            times: Times = (0.0, started - admitted, 0.0, now - started)
        else:
            service = work.service = (*work.service, now - started)
            if error is not None and self._retries(work, error, now):
                return
            times = (
                0.0,
                max(0.0, now - admitted - sum(service) - work.backoff),
                work.backoff,
                *service,
            )
        self._drive.settled(work, self._outcome(work, value, error, times))

    def _ends_the_map(self, error: Stopped) -> bool:
        """Whether it is no failure of this item: somebody is waited for, or what is spent is shared by all items."""
        if isinstance(error, BudgetSpent) and not isinstance(error, LaneParked):
            return error.budget in self._drive.run.lanes.budgets
        return isinstance(error, (LaneParked, Paused))

    def _outcome(
        self, work: CurrentItem, value: Any, error: BaseException | None, times: Times
    ) -> Outcome[Any]:
        usage = work.usage or NO_USAGE
        if error is None:
            return Done(work.index, work.key, value, work.lane, usage, times)
        if work.stop_reason is not None and work.stop_reason != "timeout":
            return Cancelled(work.index, work.key, work.stop_reason, work.lane, usage, times)
        return Failed(work.index, work.key, self._cause(work, error), work.lane, usage, times)

    def _cause(self, work: CurrentItem, error: BaseException) -> BaseException:
        """The error as the caller sees it: a cancellation by our own timer is a `TimedOut`."""
        if work.stop_reason != "timeout":
            return error
        self._drive.why.add("timeout")
        late = TimedOut(
            f"{work.path}: attempt {work.attempt} took longer than {self._drive.options.timeout:g} s"
        )
        late.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
        return late

    def _retries(self, work: CurrentItem, error: BaseException, now: float) -> bool:
        """Whether there is another attempt after this failure; if so it is on its way."""
        drive = self._drive
        retry = drive.options.retry
        if retry is None or drive.is_past_end(work) or work.stop_reason not in (None, "timeout"):
            return False
        cause = self._cause(work, error)
        delay = retry.delay(
            cause, work.attempt, drive.setting.seed, drive.setting.seeded_part(work.path)
        )
        if delay is None:
            return False
        if drive.book is not None:
            drive.book.attempt_failed(work, cause, delay)
        work.stop_reason = None
        work.timer = drive.setting.clock.call_at(now + delay, lambda: self._again(work, now))
        drive.paused()
        return True

    def _again(self, work: CurrentItem, since: float) -> None:
        work.timer = None
        work.backoff += self._now() - since
        work.attempt += 1
        work.scope = None  # what the failed attempt opened has ended; the next one opens its own
        self._drive.ask(work)

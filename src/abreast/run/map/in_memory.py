"""The quick way, for maps in memory that have nothing to ask, to write, to judge, to repeat or to watch.

That is most of what people run in large numbers. Its items go the same way as all others, with the
calls on it folded into two: 6 us an item against 10. Whatever isn't a plain success turns off to
the ordinary way.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from abreast.core.item import position_key
from abreast.core.outcome import NO_USAGE, Done
from abreast.run.context import RunContext
from abreast.run.current import CURRENT, CurrentItem

if TYPE_CHECKING:
    from abreast.run.map.attempts import Attempts
    from abreast.run.map.scheduler import Scheduler


def may_be_quick(drive: Scheduler, setting: RunContext) -> bool:
    """Whether a map's items can go the quick way."""
    options = drive.options
    asks = options.lane is not None or options.hold or drive.run.lanes.budgets
    watched = setting.journal is not None or options.timeout is not None or drive.release.judges
    return (
        not asks
        and not watched
        and options.retry is None
        and options.key is None
        and options.order == "item"
    )


class InMemoryMap:
    """Launches and lands items of one drive."""

    def __init__(
        self, drive: Scheduler, call: Callable[[Any], Awaitable[Any]], attempts: Attempts
    ) -> None:
        """`call` does an item's work; `attempts` takes over where it isn't a plain success."""
        self._drive = drive
        self._call = call
        self._attempts = attempts
        self._works = drive.works
        self._window = drive.window
        self._ripe = drive.release.ripe
        self._now = drive.setting.clock.now
        self._loop = drive.setting.loop
        self._context = drive.context

    def launch(self, value: Any) -> None:
        """Admit and start an item."""
        window = self._window
        index = window.admitted
        window.admitted = index + 1
        work = CurrentItem(self._drive, index, position_key(index), value, None, self._now())
        self._works[index] = work
        executing = window.executing = window.executing + 1
        if executing > window.peak:  # noqa: PLR1730 - a comparison is a third of a call to max
            window.peak = executing
        # Not loop.create_task: its wrapper costs a twentieth of an item.
        work.task = Task(self._execute(work), loop=self._loop, context=self._context.copy())

    async def _execute(self, work: CurrentItem) -> None:
        """Execute it, and land it if it simply succeeds."""
        CURRENT.set(work)
        work.started = work.admitted
        drive, window, index = self._drive, self._window, work.index
        try:
            value = await self._call(work.value)
        except (KeyboardInterrupt, GeneratorExit):
            raise  # not the item's: somebody wants this process, or this task, to end
        except BaseException as error:  # noqa: BLE001 - all others become outcomes
            await self._attempts.conclude(work, None, error)
            return
        if drive.stopped or work.scope is not None or work.strays:
            await self._attempts.conclude(work, value, None)
            return
        work.task = None
        del self._works[index]
        window.executing -= 1
        times = (0.0, 0.0, 0.0, self._now() - work.started)
        usage = NO_USAGE if work.usage is None else work.usage
        if usage is not NO_USAGE:
            drive.unclaimed[index] = usage
        outcome = Done(index, work.key, value, None, usage, times)
        if index == window.ripened:
            window.ripened = index + 1
            self._ripe.append(outcome)
            if window.settled:
                window.drain(self._ripe)
            drive.wake()
        else:
            window.settled[index] = outcome
        if not drive.exhausted:
            drive.pump()

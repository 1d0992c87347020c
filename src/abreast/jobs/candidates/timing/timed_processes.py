"""Several stands at a time, none of which outlives what is done with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from abreast.jobs.candidates.timing.timed_process import (
    ProcessPlace,
    TimedProcess,
    TimedProcessFailed,
)

_LEAVING: Final = 2.0  # s; that a stand may take to leave by itself


class TimedProcesses:
    """Those that are alive, in a group that ends with them."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        """None yet."""
        self._group = group
        self._alive: list[TimedProcess] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def started(
        self, places: Sequence[ProcessPlace]
    ) -> list[tuple[TimedProcess, dict[str, Any]]]:
        """Start some, all at once, and wait for what each tells."""
        begun: list[TimedProcess] = []
        for place in places:
            stand = TimedProcess(place)
            self._alive.append(stand)
            await stand.open()
            self._tasks.append(self._group.create_task(stand.live()))
            begun.append(stand)
        found = [(stand, await stand.told()) for stand in begun]
        for place, (_, told) in zip(places, found, strict=True):
            if missing := [name for name in place.wanted if name not in told.get("held", ())]:
                raise TimedProcessFailed(
                    f"the tests did not make the call {missing[0]} {told.get('failed', '')}".strip()
                )
        return found

    async def end(self) -> None:
        """End them all."""
        for stand in self._alive:
            stand.leave()
        if self._tasks:
            _, slow = await asyncio.wait(self._tasks, timeout=_LEAVING)
            for task in slow:
                task.cancel()
            await asyncio.wait(self._tasks)
        for stand in self._alive:
            await stand.close()
        self._alive.clear()
        self._tasks.clear()


async def within_timed_processes(work: Any) -> None:  # noqa: ANN401 - of Stands
    """Do something with stands, and leave none. What it raises goes on as it is, not in a group."""
    caught: list[Exception] = []
    async with asyncio.TaskGroup() as group:
        stands = TimedProcesses(group)
        try:
            await work(stands)
        except Exception as error:  # noqa: BLE001 - raised below
            caught.append(error)
        finally:
            await stands.end()
    if caught:
        raise caught[0]

"""Starts several timed processes, and ends all of them with the work that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from abreast.jobs.candidates.timing.timed_process import (
    ProcessPlace,
    TimedProcess,
    TimedProcessFailed,
)

_LEAVE_SECONDS: Final = 2.0  # that a process may take to end by itself


class TimedProcesses:
    """The timed processes that are alive, as tasks of one task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        """Start without processes."""
        self._group = group
        self._alive: list[TimedProcess] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(
        self, places: Sequence[ProcessPlace]
    ) -> list[tuple[TimedProcess, dict[str, Any]]]:
        """Start some at once, wait until each is ready, and return them with their answers."""
        begun: list[TimedProcess] = []
        for place in places:
            process = TimedProcess(place)
            self._alive.append(process)
            await process.open()
            self._tasks.append(self._group.create_task(process.live()))
            begun.append(process)
        found = [(process, await process.wait_until_ready()) for process in begun]
        for place, (_, ready) in zip(places, found, strict=True):
            if missing := [name for name in place.wanted if name not in ready.get("held", ())]:
                failed = ready.get("failed", "")
                raise TimedProcessFailed(
                    f"the tests did not make the call {missing[0]} {failed}".strip()
                )
        return found

    async def end(self) -> None:
        """End them all."""
        for process in self._alive:
            process.leave()
        if self._tasks:
            _, slow = await asyncio.wait(self._tasks, timeout=_LEAVE_SECONDS)
            for task in slow:
                task.cancel()
            await asyncio.wait(self._tasks)
        for process in self._alive:
            await process.close()
        self._alive.clear()
        self._tasks.clear()


async def within_timed_processes(work: Any) -> None:  # noqa: ANN401 - takes TimedProcesses
    """Run `work` with timed processes, and end all of them.

    What it raises is raised as it is, not in an exception group.
    """
    caught: list[Exception] = []
    async with asyncio.TaskGroup() as group:
        processes = TimedProcesses(group)
        try:
            await work(processes)
        except Exception as error:  # noqa: BLE001 - raised below
            caught.append(error)
        finally:
            await processes.end()
    if caught:
        raise caught[0]

"""Steps of one list that run side by side, each as soon as those it needs have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from abreast.jobs.workflow.spec import Step
from abreast.jobs.workflow.steps.records import Record, StepFrame


class ParallelSteps:
    """What becomes of such steps, told as if one worker had done them: always the first of the list that may begin."""

    def __init__(self, frame: StepFrame, steps: Sequence[Step]) -> None:
        """Nothing has begun."""
        needs = _needs_of(steps)
        order = _one_by_one(needs)
        turn = {place: at for at, place in enumerate(order)}
        self.steps = [steps[place] for place in order]
        """In the order of that one worker: none needs a later one."""
        self.tasks: list[asyncio.Task[None]] = []
        self._needs = [[turn[need] for need in needs[place]] for place in order]
        self._frame = frame
        self._over = [asyncio.Event() for _ in steps]
        self._frames: dict[int, StepFrame] = {}
        self._errors: dict[int, Exception] = {}
        self._last = len(steps)  # the first that halts, in that order

    async def ready(self, place: int) -> StepFrame:
        """Wait for what it needs; the frame in which it sees just that."""
        for need in self._needs[place]:
            await self._over[need].wait()
        frame = self._frame.of_branch(self._frame.run)
        for need in sorted(self._all_needs(place)):
            frame.names["steps"].update(self._frames[need].mine)
        self._frames[place] = frame
        return frame

    def ended(self, place: int, record: Record) -> None:
        """One has ended. While a gate waits for a decision, the steps that run beside it end by themselves."""
        if record.halts:
            self._cut(place, drain=record.fate == "paused")
        else:
            self._over[place].set()

    def broke(self, place: int, error: Exception) -> None:
        """One has raised what is no failure of a step."""
        self._errors[place] = error
        self._cut(place)

    def gathered(self) -> Record | None:
        """All records up to the first that halts; its error is raised if it had one."""
        found: Record | None = None
        for place, step in enumerate(self.steps[: self._last + 1]):
            if place in self._errors:
                raise self._errors[place]
            frame = self._frames[place]
            self._frame.names["steps"].update(frame.mine)
            self._frame.mine.update(frame.mine)
            self._frame.merge(frame.records)
            found = frame.records[frame.full(step.common.id)]
        return found if found is not None and found.halts else None

    def _cut(self, place: int, *, drain: bool = False) -> None:
        """Nothing after that place counts any more, and nothing there begins.

        What has begun ends, if it is to.
        """
        self._last = min(self._last, place)
        for later in range(self._last + 1, len(self.tasks)):
            if not drain or later not in self._frames:
                self.tasks[later].cancel()

    def _all_needs(self, place: int) -> set[int]:
        found: set[int] = set()
        todo = list(self._needs[place])
        while todo:
            need = todo.pop()
            if need not in found:
                found.add(need)
                todo += self._needs[need]
        return found


def _needs_of(steps: Sequence[Step]) -> list[list[int]]:
    """The places that each waits for: what it names, or else the step before it."""
    places = {step.common.id: place for place, step in enumerate(steps)}
    return [
        [places[name] for name in step.common.needs]
        if step.common.needs is not None
        else [place - 1]
        if place
        else []
        for place, step in enumerate(steps)
    ]


def _one_by_one(needs: Sequence[Sequence[int]]) -> list[int]:
    """The places in the order of one worker who always takes the first that may begin."""
    left = [len(set(some)) for some in needs]
    waiters: list[list[int]] = [[] for _ in needs]
    for place, some in enumerate(needs):
        for need in set(some):
            waiters[need].append(place)
    free = [place for place, count in enumerate(left) if not count]
    heapify(free)
    order: list[int] = []
    while free:
        place = heappop(free)
        order.append(place)
        for waiter in waiters[place]:
            left[waiter] -= 1
            if not left[waiter]:
                heappush(free, waiter)
    return order

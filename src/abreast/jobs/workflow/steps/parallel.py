"""Orders the steps of one list that run side by side, each once the steps it needs have ended."""

import asyncio
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from abreast.jobs.workflow.spec import Step
from abreast.jobs.workflow.steps.records import Record, StepFrame


class ParallelSteps:
    """Collects the records of parallel steps as if a single worker had run them.

    That worker always takes the first step of the list that may begin.
    """

    def __init__(self, frame: StepFrame, steps: Sequence[Step]) -> None:
        places = {step.common.id: place for place, step in enumerate(steps)}
        # Without `needs`, a step waits for the one before it.
        needs = {
            place: [place - 1] * bool(place)
            if step.common.needs is None
            else [places[name] for name in step.common.needs]
            for place, step in enumerate(steps)
        }
        order = _single_worker_order(needs)
        turn = {place: at for at, place in enumerate(order)}
        self.steps = [steps[place] for place in order]
        """In the order of a single worker: none needs a later one."""
        self.tasks: list[asyncio.Task[None]] = []
        self._needs = [[turn[need] for need in needs[place]] for place in order]
        self._all_needs: list[set[int]] = []  # also through others, in the same order
        for own in self._needs:
            self._all_needs.append(set(own).union(*(self._all_needs[need] for need in own)))
        self._frame = frame
        self._done = [asyncio.Event() for _ in steps]
        self._frames: dict[int, StepFrame] = {}
        self._errors: dict[int, Exception] = {}
        self._last = len(steps)  # the place of the first step that halts, in that order

    async def wait_ready(self, place: int) -> StepFrame:
        """Wait for the steps that it needs; return a frame in which it sees only those."""
        for need in self._needs[place]:
            await self._done[need].wait()
        frame = self._frame.of_branch(self._frame.run)
        for need in sorted(self._all_needs[place]):
            frame.names["steps"].update(self._frames[need].mine)
        self._frames[place] = frame
        return frame

    def set_ended(self, place: int, record: Record) -> None:
        """Note that a step has ended; if it halts, cancel the later ones.

        If it is paused at a gate, the later steps that have begun are not cancelled.
        """
        if record.halts:
            self._cancel_after(place, drain=record.fate == "paused")
        else:
            self._done[place].set()

    def set_error(self, place: int, error: Exception) -> None:
        """Note that a step has raised a fault, which is no failure of a step."""
        self._errors[place] = error
        self._cancel_after(place)

    def collect(self) -> Record | None:
        """Merge all records up to the first that halts and return that one, or raise its error."""
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

    def _cancel_after(self, place: int, *, drain: bool = False) -> None:
        """Ignore and cancel the steps after that place; `drain` lets those in work go on."""
        self._last = min(self._last, place)
        for later in range(self._last + 1, len(self.tasks)):
            if not drain or later not in self._frames:
                self.tasks[later].cancel()


def _single_worker_order(needs: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the places in the order of a worker that always takes the first that may begin."""
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    free: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for place in sorter.get_ready():
            heappush(free, place)
        order.append(heappop(free))
        sorter.done(order[-1])
    return order

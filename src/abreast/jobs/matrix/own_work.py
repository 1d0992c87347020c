"""Places on a lane for a strategy's own requests to its provider, and their measured time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from abreast.core.clock import Clock
from abreast.jobs.matrix.call_notes import NOTES, CallAttempt, CountedModel, LaneCount
from abreast.run.calls.model import Caller
from abreast.run.calls.permit import LanePermit
from abreast.run.item_state import current_state


class OwnWork:
    """A place on a caller's lane, held for the current item.

    A strategy as a whole holds one place, and calls through its model use that place. A block of
    `model.permit()` holds one for a part of the strategy: the strategy then holds places only
    within such blocks. A call within a block takes a place of its own, and the block gives up its
    place meanwhile, so that neither waits for the other.
    """

    def __init__(self, caller: Caller, clock: Clock, *, is_block: bool = False) -> None:
        """Hold no place yet."""
        item = current_state()
        if item is None:
            raise RuntimeError("a place on a lane is taken inside a cell")
        self._permit = LanePermit(caller, item)
        self._notes = NOTES.get()
        counted = caller.model
        self._lane = counted.lane if isinstance(counted, CountedModel) else LaneCount()
        self._clock = clock
        self.is_block = is_block
        self._began: float | None = None
        self._in_flight = 0
        self._calls = 0
        self._is_over = False

    async def take(self) -> None:
        """Wait for the place."""
        await self._permit.take()
        if not self.is_block:
            self._permit.attach()
        self._in_flight = self._lane.enter()
        self._began = self._clock.now()

    def give(self) -> None:
        """Give the place back.

        The time since it was taken counts as service time, unless a call was counted in it.
        """
        began, now = self._began, self._clock.now()
        self._permit.give(sent=began is not None)
        self.yield_to_calls()
        if began is not None and self._notes is not None:
            self._notes.attempts.append(
                CallAttempt(began, now, "done", self._in_flight, now - began)
            )

    def step_aside(self) -> None:
        """Give the place back because the strategy takes places by itself.

        Its time until now was not a request.
        """
        self.yield_to_calls()
        self._permit.give(sent=False)

    def yield_to_calls(self) -> None:
        """Stop measuring, because a call is made, which is counted and measured by itself."""
        if self._began is not None:
            self._began = None
            self._lane.leave()

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Enclose a call through the model."""
        if not self.is_block:
            if self._permit.is_governed:
                self.step_aside()
            yield
            return
        self._calls += 1
        if self._calls == 1:
            self.give()
        try:
            yield
        except asyncio.CancelledError:
            self._is_over = True
            raise
        finally:
            self._calls -= 1
            if not self._calls and not self._is_over:
                await self.take()

    def end(self) -> None:
        """Give the place back for good."""
        self._is_over = True
        self.give()


OWN_WORK: ContextVar[OwnWork | None] = ContextVar("abreast_matrix_own_work", default=None)


@asynccontextmanager
async def holding_place(caller: Caller, clock: Clock) -> AsyncIterator[None]:
    """Hold a place on the caller's lane for a whole strategy, or for a step with own requests."""
    work = OwnWork(caller, clock)
    await work.take()
    token = OWN_WORK.set(work)
    try:
        yield
    finally:
        OWN_WORK.reset(token)
        work.end()


@dataclass(slots=True)
class PermitBlock:
    """`async with model.permit():` holds a place on the model's lane for what is in the block."""

    _caller: Caller
    _clock: Clock
    _before: OwnWork | None = None
    _work: OwnWork | None = None

    async def __aenter__(self) -> None:
        """Wait for a place; raises RuntimeError within another block, which has one already."""
        self.begin(await self.take())

    async def __aexit__(self, *_: object) -> None:
        """Give the place back."""
        await self.give()
        self.end()

    async def take(self) -> OwnWork:
        """Wait for a place."""
        before = OWN_WORK.get()
        if before is not None and before.is_block:
            raise RuntimeError(
                "model.permit() is held already: one place is enough for what is in its block"
            )
        work = OwnWork(self._caller, self._clock, is_block=True)
        if before is not None:
            before.step_aside()
        await work.take()
        return work

    def begin(self, work: OwnWork) -> None:
        """Begin the block: what runs in this context from now on is in it."""
        self._before, self._work = OWN_WORK.get(), work
        OWN_WORK.set(work)

    async def give(self) -> None:
        """Give the place back."""
        if self._work is not None:
            self._work.end()

    def end(self) -> None:
        """End the block: what runs in this context from now on is not in it."""
        OWN_WORK.set(self._before)

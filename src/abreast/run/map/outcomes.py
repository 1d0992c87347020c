"""The result of `run.map`: its outcomes, as an async iterator and a context manager."""

from collections.abc import AsyncIterator, Awaitable
from typing import Generic, Self, TypeVar

from abreast.core.errors import ItemsFailed
from abreast.core.outcome import NO_USAGE, Cancelled, Done, Failed, Outcome, Usage
from abreast.run.map.scheduler import Scheduler

T = TypeVar("T")
R = TypeVar("R")


class Map(Generic[T, R]):
    """The outcomes of a function that is called with many items side by side, in item order.

    Iterate it with `async for`, once. As `async with run.map(...) as outcomes:` it starts at once,
    and everything it started has ended when the block ends. If you leave a plain loop early, the
    map stops when Python drops the iterator, and at the latest when the run's block ends.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        """Nothing starts before the first `anext`, or before the `async with` is entered."""
        self._scheduler = scheduler
        self._outcomes: AsyncIterator[Outcome[R]] | None = None

    def __repr__(self) -> str:
        return f"<Map {self.path} {self._scheduler.window!r}>"

    @property
    def path(self) -> str:
        """Its path, such as `summaries/summarise`."""
        return self._scheduler.path

    @property
    def peak(self) -> int:
        """The most items that were under way at once.

        An item is under way from its start until its outcome is recorded.
        """
        return self._scheduler.window.peak

    @property
    def losers(self) -> tuple[Failed, ...]:
        """Failures of items past the stopping point, which are in no result."""
        return tuple(self._scheduler.losers)

    @property
    def speculative(self) -> Usage:
        """Usage of items whose outcomes were not taken: those past the stopping point.

        It depends on timing.
        """
        return sum((used for _, used in sorted(self._scheduler.unclaimed.items())), NO_USAGE)

    @property
    def timing_dependent(self) -> frozenset[str]:
        """The options and limits that let timing change the outcomes.

        Empty if the outcomes are those of a plain loop at any timing.
        """
        return frozenset(self._scheduler.timing_causes)

    def __aiter__(self) -> AsyncIterator[Outcome[R]]:
        if self._outcomes is not None:
            raise RuntimeError(f"{self.path} can be iterated once")
        self._outcomes = self._release()
        return self._outcomes

    def __anext__(self) -> Awaitable[Outcome[R]]:
        if self._outcomes is None:
            self._outcomes = self._release()
        return self._outcomes.__anext__()

    async def __aenter__(self) -> Self:
        """Start, so that items are under way before the first outcome is asked for."""
        await self._scheduler.begin()
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Stop what still runs and wait for it to end."""
        await self._scheduler.close("left")

    def cancel(self, index: int, reason: str) -> None:
        """End one item, whose outcome is then `Cancelled(reason)`.

        If it has ended already, nothing happens.
        """
        self._scheduler.cancel(index, reason)

    def leave_usage(self) -> None:
        """Don't add the outcomes' usage to the item that takes them; it counts it itself."""
        self._scheduler.counts_usage = False

    async def values(self) -> list[R]:
        """All values, in order.

        One failure is raised as itself, several as `ItemsFailed` with the first as its cause.
        """
        outcomes = [outcome async for outcome in self]
        errors = tuple(outcome.error for outcome in outcomes if isinstance(outcome, Failed))
        if len(errors) > 1:
            raise ItemsFailed(
                f"{len(errors)} of {len(outcomes)} items of {self.path} failed", errors
            ) from errors[0]
        if errors:
            raise errors[0]
        return [outcome.value for outcome in outcomes if isinstance(outcome, Done)]

    async def batches(self, most: int) -> AsyncIterator[list[Outcome[R]]]:
        """The outcomes as lists of at most `most`: all that are ready come together."""
        batch: list[Outcome[R]] = []
        try:
            async for outcome in self:
                batch.append(outcome)
                if not self._scheduler.release.ripe or len(batch) >= most:
                    yield batch
                    batch = []
        except Exception:
            if batch:
                yield batch
            raise

    async def _release(self) -> AsyncIterator[Outcome[R]]:
        """Yield outcomes that are ripe, wait for more, and raise the error that ended the map."""
        scheduler = self._scheduler
        ripe, window = scheduler.release.ripe, scheduler.window
        try:
            await scheduler.begin()
            while not scheduler.over:
                if not ripe:
                    await scheduler.wait()
                while ripe:
                    outcome: Outcome[R] = ripe.popleft()
                    window.taken += 1
                    if outcome.usage is not NO_USAGE:
                        scheduler.claim_usage(outcome.index)
                    if window.executing < window.width and not scheduler.exhausted:
                        scheduler.pump()
                    if not outcome.ok:
                        scheduler.count_failure(outcome)
                        if scheduler.options.on_error == "raise":
                            await scheduler.close("stopped")
                            raise self._with_notes(outcome)
                    yield outcome
            await scheduler.close("done")
            if scheduler.error is not None:
                raise scheduler.error
        finally:
            scheduler.stop("left")

    def _with_notes(self, outcome: Failed | Cancelled) -> BaseException:
        error = outcome.error
        for loser in self.losers:
            error.add_note(f"item {loser.key} of {self.path} failed too: {loser.error!r}")
        return error

"""The batches of one run: a gatherer for each lane and model, closed with the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from abreast.models.batch.service import BatchService
from abreast.models.batch.terms import BatchTerms
from abreast.run.calls.batch.gatherer import Gatherer
from abreast.run.calls.batch.quota import EnqueuedTokens
from abreast.run.calls.batch.record import BatchRecord

if TYPE_CHECKING:
    from abreast.run.context import RunContext


class RunBatches:
    """Makes gatherers when they are first needed."""

    def __init__(self) -> None:
        self._gatherers: dict[tuple[str, str], asyncio.Future[Gatherer]] = {}
        self._quotas: dict[str, EnqueuedTokens] = {}

    async def gatherer(
        self,
        context: RunContext,
        service: BatchService,
        terms: BatchTerms,
        *,
        lane: str,
    ) -> Gatherer:
        """The gatherer of a lane and model, which knows the batches of earlier drivers."""
        key = lane, service.name
        found = self._gatherers.get(key)
        if found is not None:
            return await asyncio.shield(found)
        made = self._gatherers[key] = context.loop.create_future()
        quota = self._quotas.setdefault(lane, EnqueuedTokens(terms.tokens))
        record = BatchRecord(context, lane, service.name)
        gatherer = Gatherer(service, terms, record, context.clock, quota)
        try:
            await gatherer.load()
        except BaseException:
            del self._gatherers[key]
            made.cancel()
            raise
        made.set_result(gatherer)
        return gatherer

    async def close(self, *, cancel: bool) -> None:
        """End all gatherers; with `cancel`, cancel their batches at the providers."""
        for found in self._gatherers.values():
            if found.done() and not found.cancelled():
                await found.result().close(cancel=cancel)


def batches_of(context: RunContext) -> RunBatches:
    """The batches of a run."""
    found = context.batches
    if not isinstance(found, RunBatches):
        found = context.batches = RunBatches()
    return found

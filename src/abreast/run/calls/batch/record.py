"""The record of batches in a run's journal: gathered, submitted, ended.

A batch is recorded before it is submitted, with the calls in it. So a later driver knows what may
have been submitted, looks it up by its name, and never submits it again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from abreast.core.events import BATCH_ENDED, BATCH_GATHERED, BATCH_SUBMITTED, Plain
from abreast.store.port import Store, each_event

if TYPE_CHECKING:
    from abreast.run.context import RunContext

BATCH: Final = "batch"  # the part of a path beneath which a run's batches are
_MAX_EVENTS: Final = 1_000_000


@dataclass(slots=True)
class RecordedBatch:
    """A batch that an earlier driver gathered; `upstream` is None if its submission is unknown."""

    name: str
    calls: tuple[str, ...]
    wall: float
    upstream: str | None = None


class BatchRecord:
    """Writes the batches of one lane and model into the journal, and reads them back."""

    def __init__(self, context: RunContext, lane: str, model: str) -> None:
        """A run without a journal records nothing."""
        self._context = context
        self._lane = lane
        self._model = model

    async def gathered(self, name: str, calls: Sequence[str], tokens: int) -> None:
        """Record a batch before it is submitted; returns once that survives a kill."""
        facts: dict[str, Plain | list[float]] = {"requests": len(calls), "tokens": tokens}
        await self._write(BATCH_GATHERED, name, facts, json.dumps(list(calls)))

    async def submitted(self, name: str, upstream: str) -> None:
        """Record the provider's id of a batch."""
        await self._write(BATCH_SUBMITTED, name, {"upstream": upstream})

    def ended(
        self,
        name: str,
        state: str,
        *,
        requests: int = 0,
        answered: int = 0,
        usd: float | None = None,
    ) -> None:
        """Record how a batch ended; `usd` is what it saved, if that is known."""
        journal = self._context.journal
        if journal is not None:
            facts: dict[str, Plain | list[float]] = {
                "model": self._model,
                "state": state,
                "requests": requests,
                "answered": answered,
                "saved": usd,
            }
            journal.emit(BATCH_ENDED, self._path(name), lane=self._lane, data=facts)

    async def read(self) -> list[RecordedBatch]:
        """The batches that earlier drivers gathered, the oldest first."""
        context = self._context
        store, writer, row = context.store, context.writer, context.row
        if not context.resumed or store is None or writer is None or row is None:
            return []
        kinds = {BATCH_GATHERED, BATCH_SUBMITTED, BATCH_ENDED}
        prefix = f"{context.root.path}/{BATCH}/"
        events = await writer.read(
            lambda: store.events(row.id, kinds=kinds, prefix=prefix, limit=_MAX_EVENTS)
        )
        found: dict[str, RecordedBatch] = {}
        for event in events:
            name = event.path.rpartition("/")[2]
            if event.data.get("model") != self._model or event.lane != self._lane:
                continue
            if event.kind == BATCH_GATHERED:
                calls = tuple(json.loads(event.body or "[]"))
                found[name] = RecordedBatch(name, calls, event.wall)
            elif event.kind == BATCH_SUBMITTED and name in found:
                found[name].upstream = str(event.data.get("upstream"))
            elif event.data.get("state") == NOT_SUBMITTED:
                found.pop(name, None)
        return list(found.values())

    async def _write(
        self,
        kind: str,
        name: str,
        facts: dict[str, Plain | list[float]],
        body: str | None = None,
    ) -> None:
        journal = self._context.journal
        if journal is None:
            return
        written: asyncio.Future[None] = self._context.loop.create_future()
        journal.emit(
            kind,
            self._path(name),
            lane=self._lane,
            data={"model": self._model, **facts},
            body=body,
            written=partial(_set_done, written),
        )
        await written

    def _path(self, name: str) -> str:
        return f"{self._context.root.path}/{BATCH}/{name}"


@dataclass(frozen=True, slots=True)
class SubmittedBatch:
    """A batch at a provider, as a run's journal has it."""

    model: str
    upstream: str


def batches_under_way(store: Store, run_id: str) -> list[SubmittedBatch]:
    """The batches of a run that were submitted and have not ended, as far as is recorded."""
    found: dict[str, SubmittedBatch] = {}
    for event in each_event(store, run_id, {BATCH_SUBMITTED, BATCH_ENDED}):
        if event.kind == BATCH_SUBMITTED:
            facts = event.data
            found[event.path] = SubmittedBatch(str(facts["model"]), str(facts["upstream"]))
        else:
            found.pop(event.path, None)
    return list(found.values())


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


NOT_SUBMITTED: Final = "not submitted"
"""How a batch ended that its provider does not have."""

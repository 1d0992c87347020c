"""The batches of a storm as a state machine: times and requests go in, results come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from abreast.core.seeds import derive_fraction
from abreast.testing.storm.settings import Settings

Json = dict[str, Any]

SLOW: Final = 10  # a slow batch takes so many times as long
PARTIAL: Final = 5  # of a partial batch every fifth request fails; of one with gaps it is missing


@dataclass(frozen=True, slots=True)
class EntryResult:
    """What a request of a batch was answered: an HTTP status and a body."""

    status: int
    body: Json
    key: str = ""
    input_tokens: int = 0


@dataclass(slots=True)
class BatchEntry:
    """One request of a batch.

    `outcome` is succeeded, errored, expired, cancelled or missing; empty before it has ended.
    """

    custom_id: str
    body: Json
    outcome: str = ""
    result: EntryResult | None = None

    @property
    def billed(self) -> bool:
        """Whether it is paid for."""
        return self.result is not None and self.result.status == 200  # noqa: PLR2004 - OK


@dataclass(slots=True)
class StormBatch:
    """A batch. `label` is the client's own name for it; it is listed from `visible` on."""

    number: int
    lane: str
    model: str
    label: str
    created: float
    visible: float
    ends: float
    fault: str
    entries: list[BatchEntry]
    wall: float
    tokens: int = 0
    endpoint: str = ""
    cancelled: float | None = None
    ended: bool = False
    downloads: int = 0

    @property
    def state(self) -> str:
        """in_progress, cancelling, or how it ended: completed, expired, cancelled or failed."""
        if not self.ended:
            return "in_progress" if self.cancelled is None else "cancelling"
        if self.fault in ("failed", "too-many-tokens"):
            return "failed"
        if self.cancelled is not None or self.fault == "cancelled":
            return "cancelled"
        return "expired" if self.fault == "expired" else "completed"

    def count(self, outcome: str) -> int:
        """How many of its requests ended so; those of an unfinished batch have not."""
        return sum(entry.outcome == outcome for entry in self.entries)


Answer = Callable[[float, StormBatch, BatchEntry], EntryResult]
"""Answers a request of a batch, and charges it."""


@dataclass(slots=True)
class StormBatches:
    """All batches of a storm; `answer` answers a request, when its time has come."""

    answer: Answer
    seed: int = 0
    batches: list[StormBatch] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)
    submissions: int = 0

    def fault(self, settings: Settings) -> str:
        """The fault of the next submission."""
        self.submissions += 1
        if self.submissions in settings.batch_fault_at:
            return settings.batch_fault_at[self.submissions]
        fraction = derive_fraction(self.seed, f"batch/{self.submissions}")
        for name, rate in settings.batch_faults.items():
            fraction -= rate
            if fraction < 0:
                return name
        return ""

    def create(
        self,
        now: float,
        settings: Settings,
        *,
        lane: str,
        model: str,
        label: str,
        entries: Sequence[tuple[str, Json]],
        tokens: int,
        fault: str,
        wall: float,
        endpoint: str = "",
    ) -> StormBatch:
        """Accept a batch; ValueError if two of its requests have the same id."""
        names = [name for name, _ in entries]
        if len(set(names)) != len(names):
            raise ValueError("each request of a batch needs an id of its own")
        seconds = settings.batch_seconds * settings.scale
        waiting = sum(batch.tokens for batch in self.batches if not batch.ended)
        if settings.batch_tokens is not None and waiting + tokens > settings.batch_tokens:
            fault = "too-many-tokens"
        late = seconds / 2 if fault == "lost-late" else 0.0
        batch = StormBatch(
            len(self.batches) + 1,
            lane,
            model,
            label,
            now,
            now + late,
            now + seconds * (SLOW if fault == "slow" else 1),
            fault,
            [BatchEntry(name, body) for name, body in entries],
            wall,
            tokens,
            endpoint,
        )
        self.batches.append(batch)
        self.advance(now)
        return batch

    def cancel(self, now: float, batch: StormBatch) -> None:
        """Cancel what is not answered yet; a batch that has ended stays as it is."""
        self.advance(now)
        if not batch.ended and batch.cancelled is None:
            batch.cancelled = now
            self._end(batch, now)

    def end(self, now: float) -> None:
        """End what is still waiting, as if its time had come."""
        for batch in self.batches:
            batch.ends = min(batch.ends, now)
        self.advance(now)

    def listed(self, now: float, lane: str) -> list[StormBatch]:
        """The batches of one API, the newest first."""
        self.advance(now)
        mine = [one for one in self.batches if one.lane == lane and one.visible <= now]
        return mine[::-1]

    def find(self, now: float, lane: str, number: int) -> StormBatch | None:
        """The batch of that number."""
        self.advance(now)
        found = self.batches[number - 1] if 0 < number <= len(self.batches) else None
        return found if found is not None and found.lane == lane else None

    def advance(self, now: float) -> None:
        """End the batches whose time has come."""
        for batch in self.batches:
            if not batch.ended and (now >= batch.ends or batch.fault == "too-many-tokens"):
                self._end(batch, batch.ends)

    def _end(self, batch: StormBatch, now: float) -> None:
        batch.ended = True
        if batch.state == "failed":
            return
        seconds, size = max(batch.ends - batch.created, 1e-9), len(batch.entries)
        share = 0.5 if batch.fault in ("expired", "cancelled") else 1.0
        if batch.cancelled is not None:
            share = min(share, (batch.cancelled - batch.created) / seconds)
        left = "expired" if batch.fault == "expired" and batch.cancelled is None else "cancelled"
        for place, entry in enumerate(batch.entries):
            fails = not place % PARTIAL
            if place >= share * size:
                entry.outcome = left
            elif batch.fault == "partial" and fails:
                entry.outcome = "errored"
                entry.result = EntryResult(500, {"message": "The server had an error."})
            elif batch.fault == "missing" and fails:
                entry.outcome = "missing"
            else:
                entry.result = self.answer(now, batch, entry)
                entry.outcome = "succeeded" if entry.billed else "errored"

    def results(self, batch: StormBatch) -> list[BatchEntry]:
        """The requests of a batch in the order of its results, which is not theirs.

        Some are twice in it, if that is its fault.
        """
        listed = [entry for entry in batch.entries if entry.outcome not in ("", "missing")]
        if batch.fault == "duplicates":
            listed += listed[::3]
        return sorted(
            listed, key=lambda entry: blake2b(f"{batch.number}/{entry.custom_id}".encode()).digest()
        )

    def log(self) -> list[Mapping[str, Any]]:
        """A row for each request of each batch: what became of it, and whether it is billed."""
        return [
            {
                "batch": batch.number,
                "label": batch.label,
                "lane": batch.lane,
                "model": batch.model,
                "fault": batch.fault,
                "state": batch.state,
                "custom_id": entry.custom_id,
                "key": "" if entry.result is None else entry.result.key,
                "outcome": entry.outcome,
                "billed": entry.billed,
            }
            for batch in self.batches
            for entry in batch.entries
        ]

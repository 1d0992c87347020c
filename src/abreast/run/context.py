"""The state that all scopes of one run share: clock, gate, journal, executors, hooks, results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from abreast.core.clock import Clock
from abreast.core.errors import Halted
from abreast.core.frozen import record
from abreast.core.run_end import NONE_DONE, STOPPED_AT
from abreast.core.seeds import SEED_RULE, derive_seed, seeded_part
from abreast.executors.port import Executor
from abreast.limits.gate import LimitGate

if TYPE_CHECKING:
    from abreast.limits.budget import Budget
    from abreast.limits.shared.ledger import Terms
    from abreast.limits.shared.share import LaneShare
    from abreast.run.journal import Journal
    from abreast.run.shared_lanes import SharedLanes
    from abreast.store.port import JsonValue, RunRow, Store
    from abreast.store.totals import RunTotals
    from abreast.store.writer import CommitWriter

GRACE = 5.0  # seconds that cancelled work has to clean up after itself
# Seconds for the same after a KeyboardInterrupt or a cancellation from outside.
GRACE_ON_INTERRUPT = 0.5


@record(slots=True)
class Results:
    """How many items of a scope's own maps succeeded and failed.

    Items of maps beneath those items are not counted.
    """

    done: int = 0
    failed: int = 0
    # What a job counts instead of items, such as `cell`; outcomes of maps are then not added.
    what: str = ""

    def add(self, done: int, failed: int) -> None:
        """Add the counts of a map, or of a scope within this one."""
        if not self.what:
            self.done += done
            self.failed += failed

    @property
    def why_failed(self) -> str | None:
        """Why a run with these results has failed; None if it has not."""
        if self.done or not self.failed:
            return None
        noun = f" {self.what}{'s' if self.failed > 1 else ''}" if self.what else ""
        return f"{NONE_DONE}: {self.failed}{noun} failed"


class StoppedAtFailure(Halted):
    """A map with `on_error="halt"` has stopped at its first failure."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{STOPPED_AT}: item {key} failed")


class RootScope(Protocol):
    """What opening, driving and closing a run need of its outermost scope."""

    name: str
    path: str
    budget: Budget | None
    results: Results

    @property
    def stopped(self) -> BaseException | None:
        """Why it was stopped, if it was."""

    def stop(self, error: BaseException, *, lost: bool = False) -> None:
        """End all maps with `error`; with `lost`, nothing more can be written to the store."""


class ClosableBatches(Protocol):
    """The batches of a run."""

    async def close(self, *, cancel: bool) -> None:
        """Stop waiting for them; with `cancel`, cancel them at their providers."""


@record(frozen=True, slots=True)
class Opening:
    """How to open a run; created by `open_run`, used when the run's block is entered."""

    clock: Clock
    executor: Callable[[str | Executor | None], Executor]
    store: Callable[[], Store] | None = None
    own_store: bool = True
    seed: int | None = None
    resume: str = "auto"
    run_id: str | None = None
    kind: str = "script"
    tags: tuple[str, ...] = ()
    hooks: Sequence[object] = ()
    manifest: Mapping[str, JsonValue] = field(default_factory=dict)
    redact: Callable[[str, object], object] | None = None
    retry_keys: frozenset[str] = frozenset()
    types: Mapping[str, type] = field(default_factory=dict)


@record(slots=True)
class RunContext:
    """Created when a run is entered; read by its scopes and maps."""

    clock: Clock
    gate: LimitGate
    loop: asyncio.AbstractEventLoop
    seed: int
    hooks: Sequence[object]
    executor: Callable[[str | Executor | None], Executor]
    root: RootScope
    journal: Journal | None = None
    writer: CommitWriter | None = None
    totals: RunTotals | None = None  # the counts that are kept in the run's row
    store: Store | None = None
    shared_lanes: SharedLanes | None = None  # those that calls have used
    batches: ClosableBatches | None = None  # of calls that are made in batches
    row: RunRow | None = None
    resumed: bool = False
    retry_failed: bool = False
    retry_unknown: bool = False  # also retry `once` items whose outcome is unknown
    retry_keys: frozenset[str] = frozenset()  # keys of the failed items to retry; empty: all
    own_store: bool = True
    redact: Callable[[str, object], object] | None = None
    grace: float = GRACE  # seconds
    seed_rule: int = SEED_RULE
    # The user's types for reading recorded values back, by `module:qualname`.
    types: Mapping[str, type] = field(default_factory=dict)

    def seed_of(self, path: str) -> int:
        """The seed for the work at that path of the run."""
        return derive_seed(self.seed, self.seeded_part(path))

    def seeded_part(self, path: str) -> str:
        """The part of a path that seeds are derived from, by the run's own rule."""
        return seeded_part(path, self.seed_rule)

    def share_of(self, lane: str, terms: Terms) -> LaneShare | None:
        """The run's share of a lane that several processes use; None without a store."""
        if self.store is None:
            return None
        if self.shared_lanes is None:
            from abreast.run.shared_lanes import SharedLanes

            self.shared_lanes = SharedLanes(self.store, self.clock)
        return self.shared_lanes.share(lane, terms)

    async def give_back_lanes(self) -> None:
        """Give back what the run holds of shared lanes."""
        if self.shared_lanes is not None:
            await self.shared_lanes.close()

    async def close_batches(self, *, cancel: bool) -> None:
        """Stop waiting for batches; those of a run that can go on are waited for then."""
        if self.batches is not None:
            await self.batches.close(cancel=cancel)

    @property
    def stored(self) -> bool:
        """Whether outcomes go to a store."""
        return self.store is not None

    def spent(self) -> Mapping[str, float]:
        """What the root's own budget has used up, in the form that the store keeps."""
        budget = self.root.budget
        if budget is not None:
            return budget.snapshot(self.clock.now())
        # Without a budget, keep what earlier drivers recorded, which may have had one.
        return self.row.spent if self.row is not None else {}

"""Opening and closing a run: find or create it in its store, record how it ended."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from abreast.core.errors import BudgetSpent, CancelRequested, Halted, Paused, StoreError
from abreast.core.seeds import SEED_RULE, draw_seed
from abreast.limits.gate import LimitGate
from abreast.run.context import Opening, RootScope, RunContext

if TYPE_CHECKING:
    from abreast.core.events import Observer
    from abreast.store.port import RunRow, RunState

# Modules that only stores and observers need are imported where one is used: they take half of the
# import time.

RESUME = ("auto", "never", "must", "failed", "retry")

OBSERVER_GRACE = 1.0  # seconds for each observer to receive the last events


class CollectorThreshold:
    """While a run is open, the garbage collector searches less often, as long as it finds nothing.

    A model call in flight is about 90 objects, none of them garbage, and to visit them again and
    again was a tenth of the CPU time of a call. So each search that finds no garbage doubles the
    number of new objects before the next one. The first that finds some restores the default: items
    that leave cycles with large values behind are searched as often as without a run, after a first
    time. Thresholds set by the program are kept.
    """

    DEFAULTS: Final = ((700, 10, 10), (2000, 10, 10))  # of Python up to 3.12, and after
    MOST_NEW_OBJECTS: Final = 20_000  # between two searches: those of 200 calls in flight
    GARBAGE_PART: Final = 0.01  # of the new objects; less than that counts as none

    def __init__(self) -> None:
        self._lock = threading.Lock()  # loops in several threads may open runs
        self._open_runs = 0
        self._default: tuple[int, int, int] | None = None  # what to restore
        self._new_objects = 0  # between two searches, as it was set last

    def open(self) -> None:
        """A run opens."""
        with self._lock:
            self._open_runs += 1
            present = gc.get_threshold()
            if self._default is None and present in self.DEFAULTS:
                self._default, self._new_objects = present, present[0]
                gc.callbacks.append(self._adapt)

    def close(self) -> None:
        """A run closes; after the last one all is as it was, unless the program has changed it."""
        with self._lock:
            self._open_runs -= 1
            if self._open_runs or self._default is None:
                return
            gc.callbacks.remove(self._adapt)
            if gc.get_threshold()[0] == self._new_objects:
                gc.set_threshold(*self._default)
            self._default = None

    def _adapt(self, phase: str, info: Mapping[str, int]) -> None:
        """The collector begins or ends a search; without the lock, as it may do so anywhere."""
        default = self._default
        if phase != "stop" or default is None or gc.get_threshold()[0] != self._new_objects:
            return
        is_clean = info["collected"] <= self.GARBAGE_PART * self._new_objects
        most = min(2 * self._new_objects, self.MOST_NEW_OBJECTS)
        self._new_objects = most if is_clean else default[0]
        gc.set_threshold(self._new_objects, *default[1:])


COLLECTOR_THRESHOLD: Final = CollectorThreshold()  # one for the process, as the collector is


async def open_context(run: RootScope, opening: Opening) -> RunContext:
    """Find or create the run, start its writer, and record that it started."""
    clock = opening.clock
    observers: list[Observer] = []
    if opening.hooks:
        from abreast.run.map.hooks import observers_of

        observers = observers_of(opening.hooks)
    store = opening.store() if opening.store is not None else None
    row: RunRow | None = None
    resumed, rule = False, SEED_RULE
    if store is not None:
        from abreast.run.claim import claim, seed_rule_of

        try:
            row, resumed = claim(run.name, store, opening)
            rule = seed_rule_of(row)
        except BaseException:
            if opening.own_store:
                store.close()
            raise
    seed = row.seed if row else draw_seed() if opening.seed is None else opening.seed
    context = RunContext(
        clock=clock,
        gate=LimitGate(clock),
        loop=asyncio.get_running_loop(),
        seed=seed,
        hooks=opening.hooks,
        executor=opening.executor,
        root=run,
        store=store,
        row=row,
        resumed=resumed,
        retry_failed=opening.resume in ("failed", "retry"),
        retry_unknown=opening.resume == "retry",
        retry_keys=opening.retry_keys,
        redact=opening.redact,
        own_store=opening.own_store,
        seed_rule=rule,
        types=opening.types,
    )
    if row is not None and run.budget is not None and resumed:
        run.budget.restore(row.spent)
    if store is not None and row is not None:
        from abreast.run.claim import start_writer

        start_writer(context, store, row)
    if context.writer is not None or observers:
        from abreast.core.events import RUN_RESUMED, RUN_STARTED
        from abreast.run.journal import Journal

        context.journal = Journal(clock, context.writer, observers, row.last_seq if row else 0)
        context.journal.emit(
            RUN_RESUMED if resumed else RUN_STARTED,
            run.path,
            data={"seed": seed, "pid": os.getpid()},
        )
    COLLECTOR_THRESHOLD.open()
    return context


async def close_run(context: RunContext, error: BaseException | None) -> None:
    """Record the end, close the store, and let observers receive the last events."""
    COLLECTOR_THRESHOLD.close()
    state, reason = _final_state(context.root.stopped or error, error)
    await context.close_batches(cancel=state in ("done", "failed", "cancelled"))
    if state == "done" and (failed := context.root.results.why_failed) is not None:
        state, reason = "failed", failed
    journal, writer, store, row = context.journal, context.writer, context.store, context.row
    if journal is not None:
        from abreast.core.events import RUN_ENDED, RUN_HALTED

        if state in ("halted", "spent", "cancelled", "interrupted", "paused"):
            journal.emit(RUN_HALTED, context.root.path, data={"reason": reason or state})
        journal.emit(RUN_ENDED, context.root.path, data={"state": state, "reason": reason})
    await context.give_back_lanes()
    try:
        if writer is not None and store is not None and row is not None:
            await writer.close()
            if not writer.broken:
                store.end(row.id, row.epoch, state, reason, context.clock.wall())
            # If no map was open, nothing else has raised the writer's failure.
            elif writer.failure is not None and error is None:
                raise writer.failure
    finally:
        if store is not None and row is not None:
            store.let_go(row.id)
            if context.own_store:
                store.close()
        if journal is not None:
            journal.close(OBSERVER_GRACE)


def _final_state(cause: BaseException | None, error: BaseException | None) -> tuple[RunState, str]:
    if error is None and cause is None:
        return "done", ""
    is_interrupt = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
    if is_interrupt and not isinstance(cause, StoreError):
        return "interrupted", "interrupted"
    for kind, state in _STATES:
        if isinstance(cause, kind):
            return state, str(cause)
    is_sentence = getattr(cause, "is_sentence", False)
    return "failed", str(cause) if is_sentence else f"{type(cause).__name__}: {cause}"


_STATES: tuple[tuple[type[BaseException], RunState], ...] = (
    (BudgetSpent, "spent"),
    (CancelRequested, "cancelled"),
    (Halted, "halted"),
    (Paused, "paused"),
)

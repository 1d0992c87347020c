"""The scheduler of a map: the only scheduling loop in abreast.

It is driven by events: an item ends, a limit is granted, the caller takes an outcome. Each of these
calls `pump`, which reads and starts as many items as the window allows. Nothing polls, and there
are no tasks but those of the items (and one that reads, if items come asynchronously or may be
recorded already). The collaborators return decisions; only the scheduler acts on them.

    read -> Admission -> ask (window, limits) -> Attempts -> settled -> on disk -> Release -> caller
"""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import AsyncIterable, Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from abreast.core.errors import BudgetSpent, ItemChanged, KeyReused, StoreError
from abreast.core.halting import Halting
from abreast.core.item import escape
from abreast.core.outcome import NO_USAGE, Cancelled, Failed, Outcome, Usage
from abreast.core.window import Window
from abreast.executors.port import BoundCall
from abreast.executors.tasks import is_async
from abreast.limits.limit import ONE, Ticket
from abreast.run.context import Results, RunContext
from abreast.run.item_state import ItemState, MapPlace, OuterScope, current_state
from abreast.run.map.admission import Admission, WidthLimit
from abreast.run.map.attempts import Attempts, MapTasks
from abreast.run.map.away import AwayItems
from abreast.run.map.options import SPAN_IN_MEMORY, MapOptions
from abreast.run.map.reader import Reader, close_sources
from abreast.run.map.release import Barrier, Fetch, Release, Stub
from abreast.run.slot_lending import lend, reclaim

if TYPE_CHECKING:
    from abreast.run.map.journal import MapJournal

READ_BACK_OUTCOMES = 64  # outcomes read back from the store at once
SECOND_CANCEL_GRACE = 0.5  # seconds for tasks that ignored their first cancellation


class LeftBehind(ResourceWarning):
    """Work that can't be stopped is still running; the message names it."""


class MapOwner(OuterScope, Protocol):
    """The scope that a map is opened in."""

    path: str
    results: Results

    def adopt(self, opened: Scheduler) -> None:
        """Register a map that starts; raises if the scope was stopped."""

    def release(self, ended: Scheduler) -> None:
        """Unregister a map that has ended."""


class Scheduler:
    """Runs one map, from its first item until nothing of it is left."""

    # An item's way through it is 5% shorter with slots: instances share at most 30 attributes.
    __slots__ = (
        "_admission",
        "_attempts",
        "_away",
        "_begun",
        "_bound",
        "_cancelled",
        "_draining",
        "_end",
        "_ended",
        "_failed",
        "_fetching",
        "_fn",
        "_items",
        "_lost",
        "_now",
        "_owner",
        "_place",
        "_reader",
        "_tasks",
        "_waiters",
        "_width_limit",
        "context",
        "counts_usage",
        "error",
        "exhausted",
        "journal",
        "looks_up",
        "losers",
        "open_items",
        "options",
        "parent",
        "path",
        "release",
        "repeats",
        "stopped",
        "timing_causes",
        "unclaimed",
        "window",
    )

    def __init__(
        self,
        owner: MapOwner,
        context: RunContext,
        fn: Callable[..., Any],
        items: Iterable[Any] | AsyncIterable[Any],
        options: MapOptions,
    ) -> None:
        """Nothing starts before `begin`."""
        self.path: str = f"{owner.path}/{escape(options.name)}"
        self.context: RunContext = context
        self.options: MapOptions = options
        self.parent = parent = current_state()
        # An earlier attempt of the parent may have opened the same map. What it recorded is not
        # run again.
        self.repeats: bool = parent is not None and max(parent.attempts) > 1
        # Items may be recorded already: by an earlier driver, or by an earlier attempt.
        self.looks_up: bool = context.resumed or (self.repeats and context.stored)
        self.window: Window[Any] = Window(options.width, options.span, options.order)
        self.release: Release = Release(self.window, Halting(options.until, options.on_error))
        self.open_items: dict[int, ItemState] = {}  # items read and not complete
        self.losers: list[Failed] = []
        self.unclaimed: dict[int, Usage] = {}  # usage of outcomes that the caller has not taken
        self.counts_usage = True  # an outcome's usage is added to the item that takes it
        self.timing_causes: set[str] = (
            {"order=completion"} if options.order == "completion" else set()
        )
        self.error: BaseException | None = None
        self.journal: MapJournal | None = None
        self._failed = self._cancelled = 0  # among the outcomes that the caller has taken
        self.exhausted = self.stopped = False
        self._end: float = inf  # the index of the last item that can be in the result
        self._owner = owner
        self._fn = fn
        self._items = items
        self._width_limit = WidthLimit(self.window)
        self._away = AwayItems(
            self.window, self._width_limit, context.gate, self._start_more, parent
        )
        self._place = MapPlace(
            options.name,
            self.path,
            options.single,
            context,
            owner,
            parent,
            once=options.effect == "once",
            away=self._away,
        )
        self._now = context.clock.now
        self._admission = Admission(options, self._place)
        self._tasks = MapTasks(context.loop, self.fail)
        self._waiters: list[asyncio.Future[None]] = []  # of the iterator, and of `close`
        self._reader: Reader | None = None
        self._bound: BoundCall[Any, Any] | None = None
        self._attempts: Attempts  # from `begin` on
        self._begun = self._ended = self._fetching = self._lost = self._draining = False

    # --- the caller's side ---

    @property
    def over(self) -> bool:
        """Whether no further outcome will come.

        `close` ends what is still under way then, within its grace period.
        """
        if self.release.ripe:
            return False
        if self.stopped:
            return not (self._draining and self.open_items)
        return self.exhausted and not self.open_items and not self.window.unripe

    def is_past_end(self, item: ItemState) -> bool:
        """Whether an item can't be in the result any more, whatever its outcome is."""
        return item.index > self._end

    def claim_usage(self, index: int) -> None:
        """Add an outcome's usage to the caller's item when the caller takes the outcome.

        Not before, because a plain loop would not have run items whose outcomes are never taken.
        Recorded outcomes are counted here too, so a resumed item has the same usage as one that
        was never interrupted.
        """
        used = self.unclaimed.pop(index, None)
        if used is not None and self.parent is not None and self.counts_usage:
            self.parent.add_usage(used)

    def count_failure(self, outcome: Outcome[Any]) -> None:
        """Count an outcome that the caller takes and that is no success."""
        if isinstance(outcome, Failed):
            self._failed += 1
        else:
            self._cancelled += 1

    async def wait(self) -> None:
        """Wait until there is a change; slots of the waiting item are lent meanwhile."""
        parent = self.parent
        lent = parent is not None and lend(parent)
        waiter = self.context.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if lent and parent is not None:
                await reclaim(parent)

    def wake(self) -> None:
        """Wake up all waiters, which then check again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- beginning ---

    async def begin(self) -> None:
        """Ask the deciders, open the journal, and start the first items.

        A second call does nothing.
        """
        if self._begun:
            return
        self._begun = True
        self._owner.adopt(self)
        context = self.context
        if context.hooks:
            from abreast.run.map.hooks import ask_deciders

            self.options = await ask_deciders(context.hooks, self.path, self.options)
            self.window.width, self.window.span = self.options.width, self.options.span
        await self._away.begin()
        executor = context.executor(self.options.executor)
        self._bound = executor.bind(self._fn, self.options.width)
        self._away.can_wait = executor.carries.contextvars and is_async(self._fn)
        self._attempts = Attempts(
            self._bound.async_call, self.options, self._place, self._tasks, self._attempt_ended
        )
        if context.journal is not None:
            from abreast.run.map.journal import MapJournal

            self.journal = MapJournal(context, context.journal, self.path, repeats=self.repeats)
            await self.journal.open(self._fn, self.options)
        self._reader = reader = Reader(self._items, looks_up=self.looks_up)
        if reader.plain:
            self.pump()
        else:
            self._tasks.track(self._tasks.start(self._read_items(reader)))

    # --- reading ---

    @property
    def wants_more(self) -> bool:
        """Whether an item read now could start now."""
        # Not by the window's own two properties: this runs three times for each item of a pipe.
        window = self.window
        return window.executing < window.width and window.admitted - window.taken < window.span

    def pump(self) -> None:
        """Read and start items while the window allows it, as far as there is nothing to wait for.

        For what has to be waited for, the reading task is woken up.
        """
        window, reader = self.window, self._reader
        if reader is None or reader.is_reading:
            return
        plain, take = reader.plain, reader.take
        while (
            window.executing < window.width
            and window.admitted - window.taken < window.span
            and not self.exhausted
            and (plain or reader.has_buffered)
        ):
            try:
                item = self._admit(take())
            except StopIteration:
                self._exhaust()
            except KeyReused as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - raised by the items, where a loop raises it
                self._exhaust(error)
            else:
                self._ask(item)
        if not plain and (self.wants_more or self.stopped):
            reader.wake()

    async def _read_items(self, reader: Reader) -> None:
        """Read items that come asynchronously or may be recorded, in a task of its own."""
        while not self.exhausted:
            if not self.wants_more:
                await reader.wait()
                continue
            batch = await reader.read(self._admit, lambda: self.window.may_admit)
            if isinstance(batch.error, KeyReused):
                self.fail(batch.error)
                return
            if batch.over:
                self._exhaust(batch.error)
            known: dict[int, Outcome[Any]] = {}
            if self.journal is not None:
                charged = bool(self._owner.lanes.budgets)
                try:
                    known = await self.journal.lookup(batch.items, charged=charged)
                except (ItemChanged, KeyReused, StoreError) as error:
                    self.fail(error)
                    return
            for item in batch.items:
                self._place_item(item, known.get(item.index))

    def _admit(self, value: Any) -> ItemState:
        item = self._admission.item(value, self.window.admitted, self._now())
        if self.journal is not None:
            self.journal.digest(item)
        self.window.admit()
        self.open_items[item.index] = item
        return item

    def _exhaust(self, error: BaseException | None = None) -> None:
        """Note that there are no more items.

        If reading failed, `error` is raised after the outcomes of the items before.
        """
        self.exhausted = True
        self.error = error if self.error is None else self.error
        self.wake()

    def _place_item(self, item: ItemState, known: Outcome[Any] | None) -> None:
        if self.is_past_end(item):
            self.open_items.pop(item.index, None)
        elif known is None:
            self._ask(item)
        else:
            del self.open_items[item.index]
            if self.journal is not None and self.journal.timed_out(known):
                self.timing_causes.add("timeout")
            # If this map repeats, the earlier attempt has counted the usage.
            if known.usage is not NO_USAGE and not self.repeats:
                self.unclaimed[item.index] = known.usage
            self._update_end(known)
            self.window.settle(item.index, known)
            self._advance()

    # --- starting ---

    def _ask(self, item: ItemState) -> None:
        """Start the item if its limits and the window allow it; else it waits in their queues."""
        window, width_limit = self.window, self._width_limit
        try:
            ticket = item.ticket
            if ticket is None:
                needs = self._admission.needs(item)
                if not needs and window.executing < window.width and not width_limit.line.heap:
                    window.start()
                    self._start(item)
                    return
                asked = (("width", width_limit, ONE), *needs)
                ticket = item.ticket = Ticket(
                    asked, lambda: self._granted(item), functools.partial(self._end_at, item)
                )
            granted = self.context.gate.ask(ticket)
        except BudgetSpent as error:
            self._end_at(item, error)
        except ValueError as error:  # no such lane, or a pooled resource held twice
            self.fail(error)
        else:
            if granted:
                self._granted(item)
            elif self.journal is not None:
                self.journal.queued(item)

    def _granted(self, item: ItemState) -> None:
        ticket = item.ticket
        if ticket is not None:
            held = ticket.holds[1:]  # the first is the width, which is given back separately
            charged = [hold for hold in held if hold.limit.charged]
            item.holds = tuple(hold for hold in held if not hold.limit.charged)
            item.credits = {hold.limit for hold in charged} | (item.credits or set())
            # An item's request is charged when it starts. If it stayed a reservation, work beneath
            # the item could wait for it forever.
            self.context.gate.give(charged)
            if ticket.parked is not None and self.journal is not None:
                waited = self.context.clock.now() - item.admitted - sum(item.service) - item.backoff
                self.journal.waited(item, type(ticket.parked).__name__.lower(), waited)
        self._start(item)

    def _start(self, item: ItemState) -> None:
        """Start an attempt; a `once` item first waits until its start is on disk."""
        if self.journal is not None:
            if self.options.effect == "once":
                item.starting = True
                self.journal.started(item, durable=lambda: self._launch(item))
                return
            self.journal.started(item)
        self._launch(item)

    def _launch(self, item: ItemState) -> None:
        item.starting = False
        if item.index <= self._end:
            self._attempts.start(item)
            return
        # The map ended while the start was being written.
        self.window.finish()
        self._drop(item)
        self.wake()
        if not self.stopped:
            self._start_more()

    def _end_at(self, item: ItemState, error: BaseException) -> None:
        """End the map at the place of an item that can't start or go on."""
        if self.is_past_end(item):
            self.open_items.pop(item.index, None)
            self.wake()
            return
        if isinstance(error, BudgetSpent):
            self.timing_causes.add("budget")
        self.open_items.pop(item.index, None)
        self.window.settle(item.index, Barrier(error))
        self.exhausted = True
        self._advance()

    def _attempt_ended(self, item: ItemState, end: Outcome[Any] | Barrier) -> None:
        if item.away:
            self._away.end(item)
        if isinstance(end, Barrier):  # it can't go on for now; no outcome of it is recorded
            self.window.finish()
            self._end_at(item, end.error)
            self._start_more()
        elif type(end) is not Failed or not self._goes_on(item, end.error):
            self._settle(item, end)

    def _goes_on(self, item: ItemState, error: BaseException) -> bool:
        """Whether an item that failed waits for another attempt now."""
        if item.stop_reason == "timeout":
            self.timing_causes.add("timeout")
        if self.is_past_end(item):
            return False
        delay = self._attempts.delay(item, error)
        if delay is not None:
            self._back_off(item, error, delay)
        return delay is not None

    def _back_off(self, item: ItemState, error: BaseException, delay: float) -> None:
        """Have an item wait for its next attempt; meanwhile its place is free."""
        clock = self.context.clock
        since = clock.now()
        if self.journal is not None:
            self.journal.attempt_failed(item, error, delay)
        item.stop_reason = None
        item.timer = clock.call_at(since + delay, lambda: self._retry(item, since))
        self.window.finish()
        self._start_more()

    def _retry(self, item: ItemState, since: float) -> None:
        item.timer = None
        item.backoff += self.context.clock.now() - since
        item.attempt += 1
        item.scope = None  # the failed attempt's scope has ended; the next one opens its own
        self._ask(item)

    # --- settling ---

    def _settle(self, item: ItemState, outcome: Outcome[Any]) -> None:
        """Record an item's outcome; the item is complete at once, or when it is on disk."""
        if self.journal is None or self._lost:
            if self.release.foresees:
                self._update_end(outcome)
            self._complete(item, outcome)
        else:
            item.settling = True
            outcome, body = self.journal.recorded_form(item, outcome)
            self._update_end(outcome)
            # If this outcome may end the map, the item keeps its place: another item started there
            # would be wasted, and perhaps paid for.
            freed = None if self.release.judges else self._free_place
            self.journal.settle(
                item, outcome, body, freed, self._complete, speculative=self.is_past_end(item)
            )

    def _update_end(self, outcome: Outcome[Any]) -> None:
        """If this outcome ends the map whatever precedes it, cancel and start nothing after it."""
        if self.stopped:
            return
        end = self.release.settle(outcome)
        if end is None or end >= self._end:
            return
        self._end = end
        self.exhausted = True  # all items up to it have been read
        self._cancel_items("stopped", past=end)

    def _free_place(self, item: ItemState) -> None:
        """Let another item start in the place of this one, whose outcome survives a kill now.

        Not earlier, so that at most `width` items are repeated after a kill.
        """
        self.window.finish()
        item.freed = True
        if not self.stopped:
            self._start_more()
        self._away.check_parent()
        window = self.window
        if self.journal is not None and (
            not window.executing or not (window.may_admit or self.release.ripe)
        ):
            self.journal.flush_soon()  # nothing can start before these outcomes are on disk

    def _complete(self, item: ItemState, outcome: Outcome[Any]) -> None:
        """Complete an item whose outcome is on disk: its outcome may ripen."""
        index, window, freed = item.index, self.window, item.freed
        if not freed:
            window.finish()
        if self.open_items.pop(index, None) is None:
            return
        if outcome.usage is not NO_USAGE:
            self.unclaimed[index] = outcome.usage
        if index > self._end:
            self._complete_past_end(item, outcome)
            return
        can_drop = self.journal is not None and self._can_drop(self.journal, index, outcome)
        window.settle(index, Stub(item) if can_drop else outcome)
        self._advance()
        if not freed:
            self._start_more()
        if self.parent is not None:
            self._away.check_parent()

    def _complete_past_end(self, item: ItemState, outcome: Outcome[Any]) -> None:
        """Complete an item whose outcome is not in the result."""
        if type(outcome) is Failed:
            self.losers.append(outcome)
        if self.stopped:
            if not self.open_items:
                self.wake()
        elif not item.freed:
            self._start_more()

    def _can_drop(self, journal: MapJournal, index: int, outcome: Outcome[Any]) -> bool:
        """Whether an outcome is read back from the store when its turn comes.

        A failure that turns out to be past the end is added to `losers`: it stays in memory.
        """
        window = self.window
        is_far_ahead = index - window.ripened > SPAN_IN_MEMORY * window.width
        may_be_loser = self.release.judges and type(outcome) is Failed
        return journal.stored and is_far_ahead and not may_be_loser and window.order == "item"

    def _start_more(self) -> None:
        if self._width_limit.line.heap:
            self.context.gate.serve(self._width_limit)
        self.pump()

    # --- releasing ---

    def _advance(self) -> None:
        if self.stopped:
            return
        todo = self.release.advance(READ_BACK_OUTCOMES)
        if todo is None:
            pass
        elif isinstance(todo, Fetch):
            if not self._fetching:
                self._fetching = True
                self._tasks.track(self._tasks.start(self._refill(todo)))
        else:
            self.error = todo.error or self.error if todo.at is None else todo.error
            if self.journal is not None and todo.at is not None:
                self.journal.halted(todo.at, todo.reason)
            self.losers.extend(
                held for held in self.window.settled.values() if type(held) is Failed
            )
            self.stop("stopped", drain=todo.at is None and getattr(todo.error, "drains", False))
        if self._waiters:
            self.wake()

    async def _refill(self, fetch: Fetch) -> None:
        """Read outcomes back from disk, now that their turn has come."""
        found = await self.journal.fetch(fetch.items) if self.journal is not None else {}
        for item in fetch.items:
            self.window.replace(item.index, found[item.index])
        self._fetching = False
        self._advance()

    def cancel(self, index: int, reason: str) -> None:
        """Cancel one item, if it is under way or waits; the others go on."""
        item = self.open_items.get(index)
        if item is None or item.settling or item.starting:
            return
        if item.task is not None:
            self._attempts.cancel(item, reason)
        else:
            self._drop(item)
            self.open_items[index] = item
            self.window.executing += 1  # `_complete` counts it down, as for all others
            self._settle(item, Cancelled(item.index, item.key, reason, item.lane))

    # --- ending ---

    def stop(self, reason: str, *, drain: bool = False) -> None:
        """Start and ripen nothing more.

        Items under way are cancelled or, with `drain`, finish by themselves.
        """
        if self.stopped or self._ended:
            return
        self.stopped = self.exhausted = True
        self._end = -1
        self._draining = drain
        self._cancel_items(reason)
        if self._reader is not None:
            self._reader.wake()
        self.wake()

    def _cancel_items(self, reason: str, past: int = -1) -> None:
        """Cancel the items after index `past`, except those that drain.

        An item is not cancelled twice, because that would interrupt its clean-up.
        """
        for item in list(self.open_items.values()):
            if item.index <= past:
                continue
            if item.task is not None:
                if not self._draining and item.stop_reason in (None, "timeout"):
                    self._attempts.cancel(item, reason)
            elif not item.settling and not item.starting:
                self._drop(item)

    def _drop(self, item: ItemState) -> None:
        """Drop an item that isn't executing: it waits for limits, backoff or its lookup."""
        if item.timer is not None:
            item.timer.cancel()
            item.timer = None
        if item.ticket is not None:
            self.context.gate.withdraw(item.ticket)
        if item.holds:
            self.context.gate.give(item.holds)
            item.holds = ()
        self.open_items.pop(item.index, None)

    def fail(self, error: BaseException, *, lost: bool = False) -> None:
        """End with `error`; with `lost`, nothing more can be written to the disk."""
        self.error = error if self.error is None else self.error
        if not isinstance(error, KeyReused):
            self.release.ripe.clear()
        self._lost = self._lost or lost  # later outcomes would wait for the disk forever
        self.stop("aborted")
        if lost:
            for item in list(self.open_items.values()):
                item.settling = item.starting = False
                if item.task is None:
                    self._drop(item)
        self.wake()

    async def close(self, reason: str, grace: float | None = None) -> None:
        """Stop everything that is under way and wait for its end, for the run's grace period.

        If nothing is under way, it returns at once.
        """
        grace = self.context.grace if grace is None else grace
        if not self._begun:
            self._begun = self._ended = self.stopped = True
        if self._ended:
            return
        self.stop(reason)
        await self._settle_tasks(grace)
        if self._ended:
            return
        self._ended = True
        for name in await self._bound.close(grace) if self._bound is not None else ():
            warnings.warn(
                f"{self.path}: {name} can't be stopped and is still running",
                LeftBehind,
                stacklevel=2,
            )
        await close_sources(self._reader and self._reader.source, self._items)
        if self.journal is not None:
            self.journal.ended(self.window.peak, self.window.taken, self.timing_causes)
        if self.parent is None:  # beneath an item, the item's own outcome counts
            self._owner.results.add(
                self.window.taken - self._failed - self._cancelled, self._failed
            )
        self._away.close()
        self._owner.release(self)

    async def _settle_tasks(self, grace: float) -> None:
        """Wait for tasks to end, and cancel those that ignored a cancellation once more.

        Tasks that ignore both are named in a warning.
        """
        tracked = self._tasks.tracked
        for task in tracked:
            task.cancel()
        for seconds in (grace, min(grace, SECOND_CANCEL_GRACE)):
            tasks = [item.task for item in self.open_items.values() if item.task is not None]
            if tasks or tracked:
                await asyncio.wait([*tasks, *tracked], timeout=seconds)
            for item in list(self.open_items.values()):
                self._attempts.cancel(item, item.stop_reason or "left")
        for item in list(self.open_items.values()):
            if item.task is not None:
                warnings.warn(
                    f"{item.path} ignores its cancellation and is still running",
                    LeftBehind,
                    stacklevel=2,
                )
                self.open_items.pop(item.index)
        while self.open_items:  # outcomes that are being written
            await self.wait()

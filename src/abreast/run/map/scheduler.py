"""The driver: the only scheduler loop there is.

A map is driven by what happens to it: an item ends, a limit is granted, the caller takes an
outcome. Each of these calls `pump`, which reads and starts as much as the window allows. Nothing
polls, and there is no task but those that do the work (and one that feeds, where items come
asynchronously or may be recorded already).

    read -> Admission -> ask (window, limits) -> Attempts -> settled -> on disk -> Release -> the caller
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import warnings
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from abreast.core.errors import BudgetSpent, KeyReused, Stopped
from abreast.core.halting import Halting
from abreast.core.item import Item, escape
from abreast.core.outcome import NO_USAGE, Cancelled, Failed, Outcome, Usage
from abreast.core.window import Window
from abreast.limits.limit import ONE
from abreast.limits.queue import Ticket
from abreast.run.context import RunContext
from abreast.run.current import CurrentItem, current_item
from abreast.run.map.admission import Admission
from abreast.run.map.attempts import Attempts
from abreast.run.map.in_memory import InMemoryMap, may_be_quick
from abreast.run.map.options import SPAN_IN_MEMORY, MapOptions
from abreast.run.map.reader import Reader
from abreast.run.map.release import Barrier, Fetch, MapEnd, Release, Stub
from abreast.run.map.width_limit import WidthLimit
from abreast.run.slot_lending import lend, reclaim

if TYPE_CHECKING:
    from abreast.executors.port import BoundCall
    from abreast.run.map.journal import MapJournal
    from abreast.run.run import Run

_AHEAD = 64  # outcomes read back from the store at once
_LAST_GRACE = 0.5  # seconds for those that swallowed their first cancellation


class LeftBehind(ResourceWarning):
    """Something that can't be stopped is still running; the message names it."""


class Scheduler:
    """Drives one map, from its first item to the last trace of it."""

    def __init__(
        self,
        run: Run,
        setting: RunContext,
        fn: Callable[..., Any],
        items: Iterable[Any] | AsyncIterable[Any],
        options: MapOptions,
    ) -> None:
        """Nothing starts before `begin`."""
        self.run = run
        self.path: str = f"{run.path}/{escape(options.name)}"
        self.setting: RunContext = setting
        self.options: MapOptions = options
        self.parent = current_item()
        self.repeats: bool = self.parent is not None and max(self.parent.attempts) > 1
        """Whether an attempt before this one may have opened the same map: what it recorded is not run again."""
        self.context: contextvars.Context = contextvars.copy_context()
        self.window: Window[Any] = Window(options.width, options.span, options.order)
        self.release: Release = Release(self.window, Halting(options.until, options.on_error))
        self.works: dict[int, CurrentItem] = {}  # items read whose outcome has not landed
        self.losers: list[Failed] = []
        self.unclaimed: dict[
            int, Usage
        ] = {}  # what items used whose outcomes the caller has not taken
        self.counts_usage = True  # what an outcome used is added to the item that takes it
        self.why: set[str] = {"order=completion"} if options.order == "completion" else set()
        self.error: BaseException | None = None
        self.book: MapJournal | None = None
        self._failed = self._cancelled = 0  # of the outcomes that the caller has taken
        self.exhausted = self.stopped = False
        self._end: int | None = (
            None  # the item at which the map ends at the latest, once that is known
        )
        self._fn = fn
        self._items = items
        self._admission = Admission(self)
        self._room = WidthLimit(self.window)
        self._helpers: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []  # whoever iterates it, and whoever closes it
        self._source: Iterator[Any] | None = None
        self._feeder: Reader | None = None
        self._bound: BoundCall[Any, Any] | None = None
        self._attempts = Attempts(self, fn)
        self._quick: InMemoryMap | None = None
        self._begun = self._ended = self._fetching = self._lost = self._draining = False

    def path_of(self, key: str) -> str:
        """The full path of the item with that key."""
        return self.path if self.options.single else f"{self.path}/{escape(key)}"

    @property
    def looks_up(self) -> bool:
        """Whether items may be recorded already: by an earlier driver, or by an earlier attempt."""
        return self.setting.resumed or (self.repeats and self.setting.stored)

    # --- the caller's side ----------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether no outcome will come any more.

        What is still under way then is ended by `close`, within its grace.
        """
        if self.release.ripe:
            return False
        if self.stopped:
            return not (self._draining and self.works)
        return self.exhausted and not self.works and not self.window.unripe

    def is_past_end(self, work: CurrentItem) -> bool:
        """Whether an item is in no result any more, whatever comes of it."""
        return self.stopped or (self._end is not None and work.index > self._end)

    def claim_usage(self, index: int) -> None:
        """The caller takes an outcome: what it used counts for the caller's item from now on.

        Not before: a plain loop would not have run what is never taken. What is recorded comes this
        way too, so that a resumed item has used what an undisturbed one has.
        """
        used = self.unclaimed.pop(index, None)
        if used is not None and self.parent is not None and self.counts_usage:
            self.parent.add_usage(used)

    def count_failure(self, outcome: Outcome[Any]) -> None:
        """The caller takes an outcome that is no success."""
        if isinstance(outcome, Failed):
            self._failed += 1
        else:
            self._cancelled += 1

    async def wait(self) -> None:
        """Wait until there is something to hand out.

        Slots of the item that waits are free meanwhile.
        """
        parent = self.parent
        lent = parent is not None and lend(parent, self.setting)
        waiter = self.setting.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if lent and parent is not None:
                await reclaim(parent, self.setting)

    def wake(self) -> None:
        """Let whoever waits look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- beginning ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Ask the deciders, look into the journal, and start the first items.

        Harmless the second time.
        """
        if self._begun:
            return
        self._begun = True
        self.run.adopt(self)
        setting = self.setting
        if setting.hooks:
            from abreast.run.hooks import ask_deciders

            self.options = await ask_deciders(setting.hooks, self.path, self.options)
            self.window.width, self.window.span = self.options.width, self.options.span
        self._bound = setting.executor(self.options.executor).bind(self._fn, self.options.width)
        self._attempts = Attempts(self, self._bound.async_call)
        if may_be_quick(self, setting):
            self._quick = InMemoryMap(self, self._bound.async_call, self._attempts)
        if setting.journal is not None:
            from abreast.run.map.journal import MapJournal

            self.book = MapJournal(setting, setting.journal, self.path, repeats=self.repeats)
            await self.book.open(self._fn, self.options)
        if isinstance(self._items, AsyncIterable) or self.looks_up:
            self._feeder = Reader(self, self._items)
            self.look_after(self.spawn(self._feeder.work()))
        else:
            self._source = iter(self._items)
            self.pump()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task in a copy of the caller's context.

        Not by loop.create_task, whose wrapper costs half as much.
        """
        return asyncio.Task(work, loop=self.setting.loop, context=self.context.copy())

    def look_after(self, task: asyncio.Task[None]) -> None:
        """See that a task has ended before the map does, and that its error reaches the caller."""
        self._helpers.add(task)
        task.add_done_callback(self._helped)

    def _helped(self, task: asyncio.Task[None]) -> None:
        self._helpers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def wants_more(self) -> bool:
        """Whether an item read now could start now."""
        window = (
            self.window
        )  # not by its own two properties: this is asked thrice for every item of a pipe
        return window.executing < window.width and window.admitted - window.taken < window.span

    def pump(self) -> None:
        """Read and start items while the window has room for them."""
        source, window, quick = self._source, self.window, self._quick
        if source is None:
            if self._feeder is not None:
                self._feeder.nudge()
            return
        while (
            window.executing < window.width
            and window.admitted - window.taken < window.span
            and not self.exhausted
            and not self.stopped
        ):
            try:
                value = next(source)
                if quick is not None and type(value) is not Item:
                    quick.launch(value)
                    continue
                quick = self._quick = None  # it brings a key or a lane of its own
                work = self.admit(value)
            except StopIteration:
                self.exhaust()
            except KeyReused as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - the items' own error: raised where the plain loop would raise it
                self.exhaust(error)
            else:
                self.ask(work)

    def admit(self, value: Any) -> CurrentItem:
        """Make an item of a value that was read."""
        work = self._admission.item(value, self.window.admitted, self.setting.clock.now())
        if self.book is not None:
            self.book.digest(work)
        self.window.admit()
        self.works[work.index] = work
        return work

    def exhaust(self, error: BaseException | None = None) -> None:
        """There are no more items.

        Or reading them failed, which is raised after the outcomes of those before.
        """
        self.exhausted = True
        if self.error is None:
            self.error = error
        self.wake()

    def place(self, work: CurrentItem, known: Outcome[Any] | None) -> None:
        """Start an item, or put what is recorded of it in its place."""
        if self.is_past_end(work):
            self.works.pop(work.index, None)
        elif known is None:
            self.ask(work)
        else:
            del self.works[work.index]
            if self.book is not None and self.book.timed_out(known):
                self.why.add("timeout")
            if (
                known.usage is not NO_USAGE and not self.repeats
            ):  # else the earlier attempt has counted it
                self.unclaimed[work.index] = known.usage
            self._foresee(known)
            self.window.settle(work.index, known)
            self._advance()

    # --- starting -------------------------------------------------------------------------------------------------

    def ask(self, work: CurrentItem) -> None:
        """Start the item if its limits and the window allow; else it waits in line."""
        window, room = self.window, self._room
        try:
            ticket = work.ticket
            if ticket is None:
                needs = self._admission.needs(work)
                if not needs and window.may_start and not room.line.heap:
                    window.start()
                    self._attempts.start(work)
                    return
                asked = (("width", room, ONE), *needs)
                spent = functools.partial(self._spent, work)
                ticket = work.ticket = Ticket(asked, lambda: self._granted(work), spent)
            granted = self.setting.gate.ask(ticket)
        except BudgetSpent as error:
            self._spent(work, error)
        except ValueError as error:  # no such lane, or a thing held twice
            self.fail(error)
        else:
            if granted:
                self._granted(work)
            elif self.book is not None:
                self.book.queued(work)

    def _granted(self, work: CurrentItem) -> None:
        ticket = work.ticket
        if ticket is not None:
            held = ticket.holds[1:]  # the first is room in the window, which is given back apart
            charged = [hold for hold in held if hold.limit.charged]
            work.holds = tuple(hold for hold in held if not hold.limit.charged)
            work.credits = {hold.limit for hold in charged} | (work.credits or set())
            # An item's request is spent when it starts: kept as a reservation, what runs beneath
            # could wait for it.
            self.setting.gate.give(charged)
            if ticket.parked is not None and self.book is not None:
                waited = self.setting.clock.now() - work.admitted - sum(work.service) - work.backoff
                self.book.waited(work, type(ticket.parked).__name__.lower(), waited)
        self._attempts.start(work)

    def _spent(self, work: CurrentItem, error: Stopped) -> None:
        """The item can't start any more: the map ends at its place."""
        if self.is_past_end(work):
            self.works.pop(work.index, None)
            self.wake()
            return
        if isinstance(error, BudgetSpent):
            self.why.add("budget")
        self.works.pop(work.index, None)
        self.window.settle(work.index, Barrier(error))
        self.exhausted = True
        self._advance()

    def stopped_within(self, work: CurrentItem, error: Stopped) -> None:
        """An item can't go on for now: nothing is recorded of it, and the map ends at its place."""
        self.window.finish()
        self._spent(work, error)
        self._make_room()

    # --- settling -------------------------------------------------------------------------------------------------

    def settled(self, work: CurrentItem, outcome: Outcome[Any]) -> None:
        """An item has its outcome: it lands at once, or when it is on disk."""
        if self.book is None or self._lost:
            self._foresee(outcome)
            self._land(work, outcome)
        else:
            work.settling = True
            outcome, body = self.book.recorded_form(work, outcome)
            self._foresee(outcome)
            # Where it may end the map it keeps its place: what started there would be for nothing,
            # and perhaps paid.
            freed = None if self.release.judges else self._free
            self.book.settle(
                work, outcome, body, freed, self._land, speculative=self.is_past_end(work)
            )

    def _foresee(self, outcome: Outcome[Any]) -> None:
        """If this outcome ends the map whatever came before it: start nothing after it, and end what runs there."""
        if self.stopped:
            return
        end = self.release.settle(outcome)
        if end is None or (self._end is not None and end >= self._end):
            return
        self._end = end
        self.exhausted = True  # all items up to it have been read
        self._cut("stopped", past=end)

    def _free(self, work: CurrentItem) -> None:
        """Let another start in its place: only now, so that no more than `width` items can be repeated after a kill."""
        self.window.finish()
        work.freed = True
        if not self.stopped:
            self._make_room()
        window = self.window
        if self.book is not None and (
            not window.executing or not (window.may_admit or self.release.ripe)
        ):
            self.book.hurry()  # nothing can go on before what was freed is on disk

    def _land(self, work: CurrentItem, outcome: Outcome[Any]) -> None:
        """Let the outcome ripen, now that it is on disk."""
        window = self.window
        if not work.freed:
            window.finish()
        if self.works.pop(work.index, None) is None:
            return
        if outcome.usage is not NO_USAGE:
            self.unclaimed[work.index] = outcome.usage
        if self.is_past_end(work):
            if type(outcome) is Failed:
                self.losers.append(outcome)
            if self.stopped:
                if not self.works:
                    self.wake()
            elif not work.freed:
                self._make_room()
            return
        far = (
            self.book is not None
            and self.book.stored
            and work.index - window.ripened > SPAN_IN_MEMORY * window.width
        )
        kept = (
            self.release.judges and type(outcome) is Failed
        )  # it may be past the end, and is told of then
        window.settle(
            work.index, Stub(work) if far and not kept and window.order == "item" else outcome
        )
        self._advance()
        if not work.freed:
            self._make_room()

    def paused(self) -> None:
        """An item has left its place in the window and will ask again."""
        self.window.finish()
        self._make_room()

    def abandoned(self, work: CurrentItem) -> None:
        """An item that had been granted its place will not start after all."""
        self.window.finish()
        self._drop(work)
        self.wake()
        if not self.stopped:
            self._make_room()

    def _make_room(self) -> None:
        if self._room.line.heap:
            self.setting.gate.serve(self._room)
        self.pump()

    # --- releasing ------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Let outcomes ripen, and do what that calls for."""
        if self.stopped:
            return
        todo = self.release.advance(_AHEAD)
        if isinstance(todo, Fetch):
            if not self._fetching:
                self._fetching = True
                self.look_after(self.spawn(self._refill(todo)))
        elif isinstance(todo, MapEnd):
            self.error = todo.error or self.error if todo.at is None else todo.error
            if self.book is not None and todo.at is not None:
                self.book.halted(todo.at, todo.reason)
            self.losers.extend(
                held for held in self.window.settled.values() if type(held) is Failed
            )
            self.stop("stopped", drain=todo.at is None and getattr(todo.error, "drains", False))
        self.wake()

    async def _refill(self, fetch: Fetch) -> None:
        """Read back outcomes that waited on disk for their turn."""
        found = await self.book.fetch(fetch.works) if self.book is not None else {}
        for work in fetch.works:
            self.window.replace(work.index, found[work.index])
        self._fetching = False
        self._advance()

    def cancel(self, index: int, reason: str) -> None:
        """End one item, if it is under way or waits; the others go on."""
        work = self.works.get(index)
        if work is None or work.settling or work.starting:
            return
        if work.task is not None:
            self._attempts.cut(work, reason)
        else:
            self._drop(work)
            self.works[index] = work
            self.window.executing += 1  # counted down when its outcome lands, as all others are
            self.settled(work, Cancelled(work.index, work.key, reason, work.lane))

    # --- ending ---------------------------------------------------------------------------------------------------

    def stop(self, reason: str, *, drain: bool = False) -> None:
        """Start and ripen nothing more.

        End what is under way (or, to drain, let it end by itself).
        """
        if self.stopped or self._ended:
            return
        self.stopped = True
        self._draining = drain
        self._cut(reason)
        if self._feeder is not None:
            self._feeder.nudge()
        self.wake()

    def _cut(self, reason: str, past: int = -1) -> None:
        """Cancel the items after index `past`: those that execute, unless they may end by themselves, or wait.

        What is cancelled already isn't cancelled again: that would interrupt its clean-up.
        """
        for work in list(self.works.values()):
            if work.index <= past:
                continue
            if work.task is not None:
                if not self._draining and work.stop_reason in (None, "timeout"):
                    self._attempts.cut(work, reason)
            elif not work.settling and not work.starting:
                self._drop(work)

    def _drop(self, work: CurrentItem) -> None:
        """Forget an item that isn't executing: it waits for limits, for its backoff, or to be looked up."""
        if work.timer is not None:
            work.timer.cancel()
            work.timer = None
        if work.ticket is not None:
            self.setting.gate.withdraw(work.ticket)
        if work.holds:
            self.setting.gate.give(work.holds)
            work.holds = ()
        self.works.pop(work.index, None)

    def fail(self, error: BaseException, *, lost: bool = False) -> None:
        """End with `error`; with `lost`, what is on its way to the disk will never get there."""
        if self.error is None:
            self.error = error
        if not isinstance(error, KeyReused):
            self.release.ripe.clear()
        self._lost = self._lost or lost  # what ends from now on could wait for the disk for ever
        self.stop("aborted")
        if lost:
            for work in list(self.works.values()):
                work.settling = work.starting = False
                if work.task is None:
                    self._drop(work)
        self.wake()

    async def close(self, reason: str, grace: float | None = None) -> None:
        """End everything that is under way, and wait for it, as long as the run's grace.

        Harmless when nothing is.
        """
        if grace is None:
            grace = self.setting.grace
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
        await self._close_source()
        if self.book is not None:
            self.book.ended(self.window.peak, self.window.taken, self.why)
        if self.parent is None:  # beneath an item, the item's own outcome counts
            self.run.results.add(self.window.taken - self._failed - self._cancelled, self._failed)
        self.run.release(self)

    async def _settle_tasks(self, grace: float) -> None:
        """Wait for tasks to end; cancel once more those that swallowed the first.

        Name those that swallowed both.
        """
        for helper in self._helpers:
            helper.cancel()
        for patience in (grace, min(grace, _LAST_GRACE)):
            tasks = [work.task for work in self.works.values() if work.task is not None]
            if tasks or self._helpers:
                await asyncio.wait([*tasks, *self._helpers], timeout=patience)
            for work in list(self.works.values()):
                self._attempts.cut(work, work.stop_reason or "left")
        for work in list(self.works.values()):
            if work.task is not None:
                warnings.warn(
                    f"{work.path} ignores its cancellation and is still running",
                    LeftBehind,
                    stacklevel=2,
                )
                self.works.pop(work.index)
        while self.works:  # outcomes on their way to the disk
            await self.wait()

    async def _close_source(self) -> None:
        for source in (self._source, self._items):
            aclose, close = getattr(source, "aclose", None), getattr(source, "close", None)
            if aclose is not None:
                await aclose()
            elif close is not None and hasattr(
                source, "send"
            ):  # a generator; a file is its owner's to close
                close()

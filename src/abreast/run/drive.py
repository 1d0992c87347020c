"""The driver: the only scheduler loop there is.

A map is driven by what happens to it: an item ends, a limit is granted, the caller takes an outcome. Each of these
calls `pump`, which reads and starts as much as the window allows. Nothing polls, and there is no task but those that do
the work (and one that feeds, where items come asynchronously or may be recorded already).
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from asyncio import Task
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any

from abreast.core.errors import BudgetSpent, KeyReused, TimedOut
from abreast.core.halting import Halting
from abreast.core.item import Item, escape, position_key
from abreast.core.outcome import NO_USAGE, Cancelled, Failed, Outcome, Times, make_done
from abreast.core.window import Window
from abreast.limits.limit import ONE
from abreast.limits.line import Ticket
from abreast.run.book import Book
from abreast.run.current import CURRENT, Current, current_item
from abreast.run.feed import Feeder
from abreast.run.hooks import ask_deciders
from abreast.run.lending import lend, needs_beneath, reclaim
from abreast.run.options import SPAN_IN_MEMORY, MapOptions
from abreast.run.room import Barrier, Room, Stub
from abreast.run.setting import GRACE, Setting

if TYPE_CHECKING:
    from abreast.executors.port import Bound
    from abreast.limits.lane import Needs
    from abreast.run.scope import Run

_AHEAD = 64  # outcomes read back from the store at once


class LeftBehind(ResourceWarning):
    """Something that can't be stopped is still running; the message names it."""


class Drive:
    """Drives one map, from its first item to the last trace of it."""

    def __init__(self, run: Run, setting: Setting, fn: Callable[..., Any], items: Iterable[Any] | AsyncIterable[Any],
                 options: MapOptions) -> None:
        """Nothing starts before `begin`."""
        self.run = run
        self.path = f"{run.path}/{escape(options.name)}"
        self.setting = setting
        self.options = options
        self.parent = current_item()
        self.window: Window[Any] = Window(options.width, options.span, options.order)
        self.ripe: deque[Outcome[Any]] = deque()
        self.losers: list[Failed] = []
        self.why: set[str] = {"order=completion"} if options.order == "completion" else set()
        self.error: BaseException | None = None
        self.book: Book | None = None
        self.exhausted = self.stopped = False
        self._fn = fn
        self._items = items
        self._context = contextvars.copy_context()
        self._halting: Halting[Any] = Halting(options.until, options.on_error)
        self._judges = not self._halting.always_goes_on
        self._room = Room(self.window)
        self._free = self._quick = False
        self._works: dict[int, Current] = {}
        self._helpers: set[asyncio.Task[None]] = set()
        self._needs_of: dict[str | None, Needs] = {}
        self._keys: set[Any] = set()
        self._waiter: asyncio.Future[None] | None = None
        self._source: Iterator[Any] | None = None
        self._feeder: Feeder | None = None
        self._bound: Bound[Any, Any] | None = None
        self._call: Callable[[Any], Awaitable[Any]] = fn
        self._begun = self._ended = self._fetching = False
        self._now = setting.clock.now

    def path_of(self, key: str) -> str:
        """The full path of the item with that key."""
        return self.path if self.options.single else f"{self.path}/{escape(key)}"

    # --- the caller's side ----------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether no outcome will come any more."""
        if self._works or self.ripe:
            return False
        return self.stopped or (self.exhausted and not self.window.unripe)

    def taken(self) -> None:
        """The caller has an outcome in hand: there is room for another item."""
        window = self.window
        window.taken += 1
        if window.executing < window.width and not self.exhausted:
            self.pump()

    async def wait(self) -> None:
        """Wait until there is something to hand out; slots of the item that waits are free meanwhile."""
        parent = self.parent
        lent = parent is not None and lend(parent, self.setting)
        self._waiter = self.setting.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            if lent and parent is not None:
                await reclaim(parent, self.setting)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --- beginning ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Ask the deciders, look into the journal, and start the first items. Harmless the second time."""
        if self._begun:
            return
        self._begun = True
        self.run.adopt(self)
        setting, options = self.setting, self.options
        if setting.hooks:
            options = self.options = await ask_deciders(setting.hooks, self.path, options)
            self.window.width, self.window.span = options.width, options.span
        self._free = options.lane is None and not options.hold and not self.run.lanes.budgets
        # Nothing to ask, to write, to repeat or to watch: what most maps in memory are.
        self._quick = (
            self._free and setting.journal is None and options.key is options.retry is options.timeout is None
            and options.order == "item" and not self._judges
        )  # fmt: skip
        self._bound = setting.executor(options.executor).bind(self._fn, options.width)
        self._call = self._bound.async_call
        if setting.journal is not None:
            self.book = Book(setting, setting.journal, self.path)
            await self.book.open(self._fn, options)
        if isinstance(self._items, AsyncIterable):
            self._feed(aiter(self._items))
        elif setting.resumed:
            self._feed(iter(self._items))
        else:
            self._source = iter(self._items)
            self.pump()

    def _feed(self, source: Iterator[Any] | AsyncIterator[Any]) -> None:
        self._feeder = Feeder(self, source)
        self._help(self._feeder.work())

    def _help(self, helping: Coroutine[Any, Any, None]) -> None:
        task = self.setting.loop.create_task(helping, context=self._context.copy())
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
        return self.window.may_admit and self.window.may_start

    def pump(self) -> None:
        """Read and start items while the window has room for them."""
        source, window = self._source, self.window
        if source is None:
            if self._feeder is not None:
                self._feeder.nudge()
            return
        while (
            window.executing < window.width and window.admitted - window.taken < window.span
            and not self.exhausted and not self.stopped
        ):  # fmt: skip
            try:
                value = next(source)
                if self._quick and type(value) is not Item:
                    self._launch_quickly(value)
                    continue
                work = self.admit(value)
            except StopIteration:
                self.exhaust()
                return
            except KeyReused as error:
                self.fail(error)
                return
            except Exception as error:  # noqa: BLE001 - the items' own error: raised where the plain loop would raise it
                self.exhaust(error)
                return
            self._ask(work)

    def exhaust(self, error: BaseException | None = None) -> None:
        """There are no more items; or reading them failed, which is raised after the outcomes of those before."""
        self.exhausted = True
        if error is not None and self.error is None:
            self.error = error
        self._wake()

    def admit(self, value: Any) -> Current:
        """Make an item of a value that was read."""
        options, window = self.options, self.window
        index = window.admitted
        key = lane = None
        if type(value) is Item:
            key, lane, value = value.key, value.lane, value.value
            self._free = self._free and lane is None
            self._quick = False
        if lane is None and (lane := options.lane) is not None and not isinstance(lane, str):
            lane = lane(value)
        if key is None and options.key is not None:
            key = options.key(value)
        if key is None:
            key = position_key(index)
        else:
            self._check_key(key)
        work = Current(self, index, key, value, lane, self._now())
        if self.book is not None:
            self.book.digest(work)
        window.admit()
        self._works[index] = work
        return work

    def _check_key(self, key: Any) -> None:
        if not isinstance(key, str) or not key:
            raise TypeError(f"{self.path}: a key must be text, not {key!r}")
        mark = hash(key) if self.setting.stored else key  # with a store all keys are watched: a number each, not a text
        if mark in self._keys:
            raise KeyReused(f"{self.path}: two items have the key {key!r}")
        self._keys.add(mark)

    def place(self, work: Current, known: Outcome[Any] | None) -> None:
        """Start an item, or put what is recorded of it in its place."""
        if self.stopped:
            self._works.pop(work.index, None)
        elif known is None:
            self._ask(work)
        else:
            del self._works[work.index]
            self.window.settle(work.index, known)
            self._ripen()

    # --- starting -------------------------------------------------------------------------------------------------

    def _ask(self, work: Current) -> None:
        """Start the item if its limits and the window allow; else it waits in line."""
        window, room = self.window, self._room
        if self._free and window.executing < window.width and not room.line.heap:
            window.start()
            self._start(work)
            return
        try:
            ticket = work.ticket
            if ticket is None:
                needs = (("width", room, ONE), *self._needs(work.lane))
                ticket = work.ticket = Ticket(needs, lambda: self._granted(work), lambda error: self._spent(work, error))
            granted = self.setting.gate.ask(ticket)
        except BudgetSpent as error:
            self._spent(work, error)
        except ValueError as error:
            self.fail(error)
        else:
            if granted:
                self._granted(work)
            elif self.book is not None:
                self.book.queued(work)

    def _needs(self, lane: str | None) -> Needs:
        needs = self._needs_of.get(lane)
        if needs is None:
            weights = dict(((lane, 1), *self.options.hold) if lane is not None else self.options.hold)
            needs = self._needs_of[lane] = self.run.lanes.needs(weights.items())
        return needs if self.parent is None or not needs else needs_beneath(self.parent, needs)

    def _granted(self, work: Current) -> None:
        ticket = work.ticket
        if ticket is not None:
            work.holds = ticket.holds[1:]  # the first is room in the window, which is given back apart
            work.credits = {hold.limit for hold in work.holds if hold.limit.charged}
            if ticket.parked is not None and self.book is not None:
                waited = self._now() - work.admitted - sum(work.service) - work.backoff
                self.book.waited(work, type(ticket.parked).__name__.lower(), waited)
        self._start(work)

    def _start(self, work: Current) -> None:
        if self.book is None:
            self._launch(work)
        elif self.options.effect == "once":
            work.starting = True
            self.book.started(work, durable=lambda: self._launch(work))
        else:
            self.book.started(work)
            self._launch(work)

    def _launch(self, work: Current) -> None:
        work.starting = False
        if self.stopped:  # while its start was being written
            self.window.finish()
            self._drop(work)
            self._wake()
            return
        work.started = self._now()
        # Not loop.create_task: the wrapper costs a twentieth of a no-op item.
        work.task = Task(self._execute(work), loop=self.setting.loop, context=self._context.copy())
        if self.options.timeout is not None:
            when = work.started + self.options.timeout
            work.timer = self.setting.clock.call_at(when, lambda: self._time_out(work))

    def _time_out(self, work: Current) -> None:
        if work.task is not None and work.stop_reason is None:
            self._cut(work, "timeout")

    def _cut(self, work: Current, reason: str) -> None:
        """Cancel an attempt. A task cancelled before its first step never runs at all, so its end is noted here."""
        work.stop_reason = reason
        if work.task is not None:
            unborn = getcoroutinestate(work.task.get_coro()) == CORO_CREATED
            work.task.cancel()
            if unborn:
                self._helpers.add(work.task)
                work.task.add_done_callback(self._helped)
                self._attempted(work, None, asyncio.CancelledError())

    async def _execute(self, work: Current) -> None:
        """One attempt, in the item's own task and context."""
        CURRENT.set(work)
        error: BaseException | None = None
        value: Any = None
        try:
            value = await self._call(work.value)
        except (Exception, asyncio.CancelledError, SystemExit) as raised:  # noqa: BLE001 - all become outcomes
            error = raised
        await self._conclude(work, value, error)

    async def _conclude(self, work: Current, value: Any, error: BaseException | None) -> None:
        """The item's call has ended; what it left open beneath it ends now."""
        try:
            if work.scope is not None:
                await work.scope.settle_maps(GRACE)
            self._attempted(work, value, error)
        except Exception as bug:  # noqa: BLE001 - a fault of ours must reach the caller, not vanish with the task
            self.fail(bug)

    # --- the quick way --------------------------------------------------------------------------------------------
    # A map in memory that has nothing to ask, to write, to judge, to repeat or to watch is most of what people run in
    # large numbers. Its items go the same way as all others, with the calls folded into two: 6 us an item against 10.

    def _launch_quickly(self, value: Any) -> None:
        """`admit`, `_ask` and `_launch` in one."""
        window = self.window
        index = window.admitted
        window.admitted = index + 1
        work = Current(self, index, position_key(index), value, None, self._now())
        self._works[index] = work
        executing = window.executing = window.executing + 1
        if executing > window.peak:
            window.peak = executing
        work.task = Task(self._execute_quickly(work), loop=self.setting.loop, context=self._context.copy())

    async def _execute_quickly(self, work: Current) -> None:
        """`_execute`, `_attempted`, `_land` and `_ripen` in one, for an item that simply succeeds."""
        CURRENT.set(work)
        work.started = work.admitted
        try:
            value = await self._call(work.value)
        except (Exception, asyncio.CancelledError, SystemExit) as error:  # noqa: BLE001 - all become outcomes
            await self._conclude(work, None, error)
            return
        if self.stopped or work.scope is not None:
            await self._conclude(work, value, None)
            return
        index, window = work.index, self.window
        work.task = None
        del self._works[index]
        window.executing -= 1
        times = (0.0, 0.0, 0.0, self._now() - work.started)
        outcome = make_done(index, work.key, value, None, work.usage or NO_USAGE, times)
        if index == window.ripened:
            window.ripened = index + 1
            self.ripe.append(outcome)
            if window.settled:
                window.drain(self.ripe)
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        else:
            window.settle(index, outcome)
        if not self.exhausted:
            self.pump()

    # --- settling -------------------------------------------------------------------------------------------------

    def _attempted(self, work: Current, value: Any, error: BaseException | None) -> None:
        """An attempt has ended: settle, or try again."""
        now = self._now()
        work.task = None
        if work.timer is not None:
            work.timer.cancel()
            work.timer = None
        if work.holds:
            self.setting.gate.give(work.holds)
            work.holds = ()
        started, admitted = work.started, work.admitted
        if error is None and work.attempt == 1:
            times: Times = (0.0, started - admitted, 0.0, now - started)
        else:
            service = work.service = (*work.service, now - started)
            if error is not None and self._retries(work, error, now):
                return
            times = (0.0, max(0.0, now - admitted - sum(service) - work.backoff), work.backoff, *service)
        outcome = self._outcome(work, value, error, times)
        if self.book is None:
            self._land(work, outcome)
        else:
            work.settling = True
            self.book.settle(work, outcome, self._land, speculative=self.stopped)

    def _outcome(self, work: Current, value: Any, error: BaseException | None, times: Times) -> Outcome[Any]:
        usage = work.usage or NO_USAGE
        if error is None:
            return make_done(work.index, work.key, value, work.lane, usage, times)
        if work.stop_reason is not None and work.stop_reason != "timeout":
            return Cancelled(work.index, work.key, work.stop_reason, work.lane, usage, times)
        return Failed(work.index, work.key, self._cause(work, error), work.lane, usage, times)

    def _cause(self, work: Current, error: BaseException) -> BaseException:
        """The error as the caller sees it: a cancellation by our own timer is a `TimedOut`."""
        if work.stop_reason != "timeout":
            return error
        self.why.add("timeout")
        late = TimedOut(f"{work.path}: attempt {work.attempt} took longer than {self.options.timeout:g} s")
        late.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
        return late

    def _retries(self, work: Current, error: BaseException, now: float) -> bool:
        """Whether there is another attempt after this failure; if so it is on its way."""
        retry = self.options.retry
        if retry is None or self.stopped or work.stop_reason not in (None, "timeout"):
            return False
        cause = self._cause(work, error)
        delay = retry.delay(cause, work.attempt, self.setting.seed, work.path)
        if delay is None:
            return False
        if self.book is not None:
            self.book.attempt_failed(work, cause, delay)
        work.stop_reason = None
        work.timer = self.setting.clock.call_at(now + delay, lambda: self._again(work, now))
        self.window.finish()
        self._make_room()
        return True

    def _again(self, work: Current, since: float) -> None:
        work.timer = None
        work.backoff += self._now() - since
        work.attempt += 1
        self._ask(work)

    def _spent(self, work: Current, error: BudgetSpent) -> None:
        """The item can't start any more: the map ends at its place."""
        self.why.add("budget")
        self._works.pop(work.index, None)
        self.window.settle(work.index, Barrier(error))
        self.exhausted = True
        self._ripen()

    def _land(self, work: Current, outcome: Outcome[Any]) -> None:
        """The outcome is known (and on disk, where there is one): let it ripen, and let others start."""
        window = self.window
        window.finish()
        if self._works.pop(work.index, None) is None:
            return
        if self.stopped:
            if type(outcome) is Failed:
                self.losers.append(outcome)
            if not self._works:
                self._wake()
            return
        if self.book is None:
            if self._keys:
                self._keys.discard(work.key)
            window.settle(work.index, outcome)
        else:
            far = self.book.stored and work.index - window.ripened > SPAN_IN_MEMORY * window.width
            window.settle(work.index, Stub(work) if far and window.order == "item" else outcome)
        self._ripen()
        self._make_room()

    def _make_room(self) -> None:
        room = self._room
        if room.line.heap:
            self.setting.gate.serve(room)
        self.pump()

    # --- releasing ------------------------------------------------------------------------------------------------

    def _ripen(self) -> None:
        """Let outcomes ripen in their order, and judge each once."""
        window, ripe = self.window, self.ripe
        while not self.stopped and (outcome := window.ripen()) is not None:
            if type(outcome) is Stub:
                window.unripen(outcome.work.index, outcome)
                self._fetch()
                break
            if type(outcome) is Barrier:
                self.error = outcome.error
                self.stop("budget", drain=True)
                return
            ripe.append(outcome)
            if self._judges and self._judge(outcome):
                return
        if ripe or self.exhausted:
            self._wake()

    def _judge(self, outcome: Outcome[Any]) -> bool:
        try:
            stops = self._halting.stops_at(outcome)
        except Exception as error:  # noqa: BLE001 - the predicate's own error, raised at this item's place
            self.error = error
            stops = True
        if stops:
            if self.book is not None:
                self.book.halted(outcome.index, "until" if outcome.ok else "failure")
            self.stop("stopped")
        return stops

    def _fetch(self) -> None:
        if not self._fetching:
            self._fetching = True
            self._help(self._refill())

    async def _refill(self) -> None:
        """Read back outcomes that waited on disk for their turn."""
        stubs = [held.work for held in self.window.upcoming(_AHEAD) if type(held) is Stub]
        found = await self.book.fetch(stubs) if self.book is not None else {}
        for work in stubs:
            self.window.replace(work.index, found[work.index])
        self._fetching = False
        self._ripen()

    # --- ending ---------------------------------------------------------------------------------------------------

    def stop(self, reason: str, *, drain: bool = False) -> None:
        """Start and ripen nothing more; end what is under way (or, to drain, let it end by itself)."""
        if self.stopped or self._ended:
            return
        self.stopped = True
        for work in list(self._works.values()):
            if work.task is not None:
                if not drain:
                    self._cut(work, reason)
            elif not work.settling and not work.starting:
                self._drop(work)
        if self._feeder is not None:
            self._feeder.nudge()
        self._wake()

    def _drop(self, work: Current) -> None:
        """Forget an item that isn't executing: it waits for limits, for its backoff, or to be looked up."""
        if work.timer is not None:
            work.timer.cancel()
            work.timer = None
        if work.ticket is not None:
            self.setting.gate.withdraw(work.ticket)
        if work.holds:
            self.setting.gate.give(work.holds)
            work.holds = ()
        self._works.pop(work.index, None)

    def fail(self, error: BaseException, *, lost: bool = False) -> None:
        """End with `error`; with `lost`, what is on its way to the disk will never get there."""
        if self.error is None:
            self.error = error
        if not isinstance(error, KeyReused):
            self.ripe.clear()
        self.stop("aborted")
        if lost:
            for work in list(self._works.values()):
                work.settling = work.starting = False
                if work.task is None:
                    self._drop(work)
        self._wake()

    async def close(self, reason: str, grace: float = GRACE) -> None:
        """End everything that is under way, and wait for it. Harmless when nothing is."""
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
            warnings.warn(f"{self.path}: {name} can't be stopped and is still running", LeftBehind, stacklevel=2)
        await self._close_source()
        if self.book is not None:
            self.book.ended(self.window.peak, self.window.taken)
        self.run.release(self)

    async def _settle_tasks(self, grace: float) -> None:
        """Wait for tasks to end; cancel once more those that swallowed the first; name those that swallowed both."""
        for helper in self._helpers:
            helper.cancel()
        for patience in (grace, min(grace, 0.5)):
            tasks = [work.task for work in self._works.values() if work.task is not None]
            if tasks or self._helpers:
                await asyncio.wait([*tasks, *self._helpers], timeout=patience)
            for work in list(self._works.values()):
                self._cut(work, work.stop_reason or "left")
        for work in list(self._works.values()):
            if work.task is not None:
                warnings.warn(f"{work.path} ignores its cancellation and is still running", LeftBehind, stacklevel=2)
                self._works.pop(work.index)
        while self._works:  # outcomes on their way to the disk
            await self.wait()

    async def _close_source(self) -> None:
        for source in (self._source, self._items):
            if hasattr(source, "aclose"):
                await source.aclose()
            elif hasattr(source, "send") and hasattr(source, "close"):
                source.close()

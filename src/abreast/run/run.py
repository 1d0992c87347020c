"""The run: a durable nursery with a path, a seed, lanes and a store.

Nothing that it started outlives its block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    TypeVarTuple,
    overload,
)

from abreast.core.errors import BudgetSpent, Halted, KeyReused, LaneNeedsStore, Stopped
from abreast.core.halting import OnError, Until
from abreast.core.item import Item, escape
from abreast.core.window import Order
from abreast.executors.port import Executor
from abreast.executors.tasks import is_async
from abreast.limits.budget import Budget
from abreast.limits.lane import Holding, LaneLimits, Lanes
from abreast.run.context import GRACE_ON_INTERRUPT, Opening, Results, RunContext
from abreast.run.item_state import ItemState, current_state
from abreast.run.lifetime import close_run, open_context
from abreast.run.map.options import Effect, OnChange, check_name, check_options
from abreast.run.map.outcomes import Map
from abreast.run.map.scheduler import Scheduler
from abreast.run.retry import Retry

if TYPE_CHECKING:
    from abreast.core.clock import Timer
    from abreast.run.journal import Facts
    from abreast.store.port import Store

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# The path of the item that claimed a name, and its attempts; empty outside of items.
_Claimant: TypeAlias = tuple[str, tuple[int, ...]]

Resume: TypeAlias = Literal["auto", "never", "must", "failed", "retry"]


class Run:
    """A scope in which work runs side by side.

    Made by `abreast.open_run` and `run.child`; use it with `async with`.

    `map` calls a function with many items, `step` calls it once, `child` opens a narrower scope,
    `halt` stops the scope. When the block ends, in whatever way, nothing that it started is left:
    no task, no thread that can be stopped, no process.

    Attributes:
        name: What it is called.
        path: The name, after those of the scopes around it: `study/drafts`.
    """

    def __init__(
        self,
        name: str,
        *,
        lanes: Lanes,
        budget: Budget | None = None,
        parent: Run | None = None,
        opening: Opening | None = None,
    ) -> None:
        """For `open_run` and `child`, which check the arguments."""
        self.name = check_name(name)
        self.path: str = f"{parent.path}/{escape(name)}" if parent else escape(name)
        self.lanes = lanes
        self.budget = budget
        self._parent = parent
        self._opening = opening
        self._context: RunContext | None = (
            parent._context if parent else None  # noqa: SLF001 - the parent is a Run too
        )
        self._names: dict[str, _Claimant] = {}
        self._schedulers: set[Scheduler] = set()
        self._scopes: set[Run] = set()
        self._stopped: Stopped | BaseException | None = None
        self._deadline: Timer | None = None
        self.results = Results()

    def __repr__(self) -> str:
        return f"<Run {self.path}, {len(self._schedulers)} maps open>"

    # --- properties ---

    @property
    def context(self) -> RunContext:
        """The context that its scopes share; RuntimeError outside of the `async with`."""
        if self._context is None:
            raise RuntimeError(f"{self.path} is not open: use it as `async with ... as run:`")
        return self._context

    @property
    def seed(self) -> int:
        """The run's seed, drawn and recorded if none was given."""
        return self.context.seed

    @property
    def id(self) -> str | None:
        """The run's id in its store, such as `summaries-3`; None for a run in memory."""
        row = self.context.row
        return row.id if row else None

    @property
    def resumed(self) -> bool:
        """Whether it continues a run that an earlier driver started."""
        return self.context.resumed

    @property
    def stopped(self) -> BaseException | None:
        """Why it was stopped, if it was."""
        return self._stopped

    @property
    def store(self) -> Store | None:
        """Its store, if it has one."""
        return self.context.store

    # --- maps, steps and scopes ---

    @overload
    def map(
        self,
        fn: Callable[[T], Awaitable[R]],
        items: Iterable[T | Item[T]] | AsyncIterable[T | Item[T]],
        *,
        width: int,
        name: str | None = None,
        span: int | None = None,
        order: Order = "item",
        until: Until[R] = None,
        on_error: OnError = "collect",
        lane: str | Callable[[T], str] | None = None,
        key: Callable[[T], str] | None = None,
        retry: int | Retry | None = None,
        timeout: float | None = None,
        effect: Effect = "pure",
        hold: Holding = None,
        executor: str | Executor | None = None,
        on_change: OnChange = "refuse",
    ) -> Map[T, R]: ...

    @overload
    def map(
        self,
        fn: Callable[[T], R],
        items: Iterable[T | Item[T]] | AsyncIterable[T | Item[T]],
        *,
        width: int,
        name: str | None = None,
        span: int | None = None,
        order: Order = "item",
        until: Until[R] = None,
        on_error: OnError = "collect",
        lane: str | Callable[[T], str] | None = None,
        key: Callable[[T], str] | None = None,
        retry: int | Retry | None = None,
        timeout: float | None = None,
        effect: Effect = "pure",
        hold: Holding = None,
        executor: str | Executor | None = None,
        on_change: OnChange = "refuse",
    ) -> Map[T, R]: ...

    def map(
        self,
        fn: Callable[[Any], Any],
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        width: int,
        name: str | None = None,
        span: int | None = None,
        order: Order = "item",
        until: Until[Any] = None,
        on_error: OnError = "collect",
        lane: str | Callable[[Any], str] | None = None,
        key: Callable[[Any], str] | None = None,
        retry: int | Retry | None = None,
        timeout: float | None = None,
        effect: Effect = "pure",
        hold: Holding = None,
        executor: str | Executor | None = None,
        on_change: OnChange = "refuse",
    ) -> Map[Any, Any]:
        """Call `fn` with each item, at most `width` at once.

        Outcomes come in item order, each as soon as those before it have come. Given the same
        replies, they are those of a plain `for` loop, at any width and timing.

            async for outcome in run.map(summarise, documents, width=16, lane="openai"):
                print(outcome.key, outcome.value if outcome.ok else outcome.error)

        Args:
            fn: `async def`, or a plain function, which then runs in a thread of its own.
            items: anything iterable, also asynchronously, also endless; it is read lazily. An
                `Item` in it gives its value to `fn`, with a key and a lane of its own.
            width: how many items execute at once.
            name: the map's part of the path; by default the function's name. Once per scope.
            span: how far to run ahead of the oldest outcome not yet taken; at least `width`.
            order: `"item"`, or `"completion"` for outcomes as they come (which lets timing decide).
            until: stop after that many successes, or at the first outcome for which this function
                is true.
            on_error: `"collect"` failures and go on; `"halt"` after the first one in item order;
                or `"raise"` it there.
            lane: the lane whose limits an item holds while it executes: a name, or a function of
                the item.
            key: a function of the item that gives its stable name; by default its position.
            retry: how many further attempts a failing item gets, or a `Retry`.
            timeout: seconds an attempt may take.
            effect: `"once"` for work that must not be repeated after a crash, even if it is not
                known whether it was done.
            hold: further lanes to hold: a name, names, or weights such as `{"machine": "all"}`.
            executor: where to call `fn`: `"local"`, `"process"`, `"ray"`, or an Executor;
                by default the run's.
            on_change: what to do on resume with an item whose value is not the one recorded under
                its key: `"refuse"` it with `ItemChanged`, or `"rerun"` it.

        Raises:
            ValueError, TypeError: an option makes no sense; nothing has started.
            KeyReused: the scope has a map or step of that name.
        """
        options = check_options(
            fn,
            stored=self.context.stored,
            width=width,
            name=name,
            span=span,
            order=order,
            until=until,
            on_error=on_error,
            lane=lane,
            key=key,
            retry=retry,
            timeout=timeout,
            effect=effect,
            hold=hold,
            executor=executor,
            on_change=on_change,
        )
        for lane_name, _ in (*options.hold, *(((lane, 1),) if isinstance(lane, str) else ())):
            self.lanes.limits(lane_name)
        self._claim(options.name)
        return Map(Scheduler(self, self.context, fn, items, options))

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Ts], Awaitable[R]],
        *args: *Ts,
        lane: str | None = None,
        retry: int | Retry | None = None,
        timeout: float | None = None,
        effect: Effect = "pure",
        hold: Holding = None,
        executor: str | Executor | None = None,
        on_change: OnChange = "refuse",
    ) -> R: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Ts], R],
        *args: *Ts,
        lane: str | None = None,
        retry: int | Retry | None = None,
        timeout: float | None = None,
        effect: Effect = "pure",
        hold: Holding = None,
        executor: str | Executor | None = None,
        on_change: OnChange = "refuse",
    ) -> R: ...

    async def step(
        self,
        name: str,
        fn: Callable[[*Ts], Any],
        *args: *Ts,
        lane: str | None = None,
        retry: int | Retry | None = None,
        timeout: float | None = None,
        effect: Effect = "pure",
        hold: Holding = None,
        executor: str | Executor | None = None,
        on_change: OnChange = "refuse",
    ) -> Any:
        """Call `fn(*args)` once, as a map of one item: return its value, or raise its error.

        A recorded step is not run again.

            total = await run.step("total", add, 1, 2)

        Args:
            name: the step's part of the path; once per scope.
            fn: `async def`, or a plain function, which then runs in a thread of its own.
            *args: what it is called with; on resume they must be those that were recorded.
            lane: the lane whose limits it holds while it executes.
            retry: how many further attempts it gets if it fails, or a `Retry`.
            timeout: seconds an attempt may take.
            effect: `"once"` for work that must not be repeated after a crash, even if it is not
                known whether it was done.
            hold: further lanes to hold: a name, names, or weights such as `{"machine": "all"}`.
            executor: where to call `fn`: `"local"`, `"process"`, `"ray"`, or an Executor;
                by default the run's.
            on_change: what to do on resume if the arguments are not those recorded: `"refuse"`
                with `ItemChanged`, or `"rerun"`.

        Raises:
            ValueError, TypeError: an option makes no sense; nothing has started.
            KeyReused: the scope has a map or step of that name.
        """
        given: tuple[Any, ...] = args
        call = fn if len(given) == 1 else _AsyncSpread(fn) if is_async(fn) else _Spread(fn)
        options = check_options(
            fn,
            stored=self.context.stored,
            width=1,
            name=name,
            lane=lane,
            retry=retry,
            timeout=timeout,
            effect=effect,
            hold=hold,
            executor=executor,
            on_change=on_change,
            single=True,
        )
        self._claim(name)
        scheduler = Scheduler(
            self, self.context, call, [given[0] if len(given) == 1 else given], options
        )
        return (await Map[Any, Any](scheduler).values())[0]

    def child(
        self,
        name: str,
        *,
        lanes: Mapping[str, LaneLimits] | None = None,
        budget: Budget | str | None = None,
    ) -> Run:
        """A scope within this one, with a longer path, these limits and limits of its own.

            async with run.child("drafts", budget="100req") as drafts: ...

        Args:
            name: the scope's part of the path; once per scope.
            lanes: further lanes; to a lane of this scope they add limits.
            budget: a cap for everything in it, beside that of this scope.
        """
        self._claim(name)
        own = Budget.parse(budget) if isinstance(budget, str) else budget
        return Run(name, lanes=Lanes(lanes, own, self.lanes), budget=own, parent=self)

    def declare(self, lane: str, limits: LaneLimits) -> None:
        """Add a lane to this scope, for maps and steps opened from now on."""
        self.lanes = Lanes({lane: limits}, None, self.lanes)

    def halt(self, reason: str) -> None:
        """Stop this scope and all beneath it: maps end with `Halted(reason)`.

        Recorded outcomes are kept.
        """
        self.stop(Halted(reason))

    def count_results(self, what: str, *, done: int, failed: int) -> None:
        """Count results of this kind (`cell`) for this scope, in place of the items of its maps.

        A run in which none is done and some failed ends as `failed`. Beneath an item this does
        nothing, because the item's own outcome counts.
        """
        if current_state() is None:
            self.results = Results(done, failed, what)

    def note(
        self,
        kind: str,
        data: Facts | None = None,
        *,
        value: object = None,
        beneath: str | None = None,
    ) -> None:
        """Add an event to the run's journal, under the path of this scope or a name beneath it.

        `value` is recorded as the event's body, if there is one. The event is written with the next
        commit and doesn't cause one. A run without store and observers has no journal.
        """
        journal = self.context.journal
        if journal is None:
            return
        path = self.path if beneath is None else f"{self.path}/{escape(beneath)}"
        body = None
        if value is not None:
            from abreast.store.codec import codec

            body = codec.encode(value, path)
        journal.emit(kind, path, data=data, body=body)

    def intake(self, name: str, items: Iterable[Any]) -> AsyncIterable[Any]:
        """Items that can be read only once (a pipe), journaled as they are read.

        A resumed run takes them from the journal.
        """
        from abreast.run.map.recorded_input import RecordedInput

        self._claim(name)
        return RecordedInput(self.context, f"{self.path}/{escape(name)}", items)

    # --- for the modules of `abreast.run` ---

    def stop(self, error: BaseException, *, lost: bool = False) -> None:
        """End all maps of this scope with `error`, and all that are opened later.

        With `lost`, nothing more can be written to the store.
        """
        if self._stopped is None:
            self._stopped = error
        for scope in list(self._scopes):
            scope.stop(error, lost=lost)
        for scheduler in list(self._schedulers):
            scheduler.fail(error, lost=lost)

    def adopt(self, opened: Scheduler) -> None:
        """Register a map that starts, so that it is stopped and awaited with this scope."""
        if self._stopped is not None:
            raise self._stopped
        self._schedulers.add(opened)

    def release(self, ended: Scheduler) -> None:
        """Unregister a map that has ended."""
        self._schedulers.discard(ended)

    def scope_of(self, item: ItemState) -> Run:
        """The scope beneath an item."""
        scope = Run(item.key, lanes=self.lanes, parent=self)
        scope.path = item.path
        self._scopes.add(scope)
        scope._stopped = self._stopped
        return scope

    async def settle_maps(self, grace: float) -> None:
        """End the maps left open in this scope and beneath it."""
        for scope in list(self._scopes):
            await scope.settle_maps(grace)
        for scheduler in list(self._schedulers):
            await scheduler.close("left", grace)
        if self._parent is not None:
            self._parent._scopes.discard(self)  # noqa: SLF001 - the parent is a Run too

    def _claim(self, name: str) -> None:
        """Claim a name in this scope; a further attempt of the same item may claim it again."""
        item = current_state()
        claimant: _Claimant = ("", ()) if item is None else (item.path, item.attempts)
        before = self._names.get(name)
        if before is not None and (before[0] != claimant[0] or before[1] >= claimant[1]):
            raise KeyReused(
                f"{self.path} has a {name!r} already; give this one a name of its own (name=...)"
            )
        self._names[name] = claimant

    # --- context manager ---

    async def __aenter__(self) -> Self:
        """Open it: find or create the run in its store, and become its driver."""
        if self._opening is not None:
            self._context = context = await open_context(self, self._opening)
            try:
                self.lanes.open_shared(context.share_of)
            except LaneNeedsStore as error:
                await close_run(context, error)
                raise
        elif self._parent is not None:
            self._parent._scopes.add(self)  # noqa: SLF001 - the parent is a Run too
            self._stopped = self._parent.stopped
        if self.budget is not None:
            self.budget.begin(self.context.clock.now())
            self._watch_deadline(self.budget)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what still runs, write what is left, and record how it ended."""
        interrupted = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        try:
            await self.settle_maps(GRACE_ON_INTERRUPT if interrupted else self.context.grace)
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            if self._opening is not None:
                await close_run(self.context, error)
            elif self._parent is not None:
                self._parent.results.add(self.results.done, self.results.failed)

    def _watch_deadline(self, budget: Budget) -> None:
        deadline = budget.deadline()
        if deadline is not None:
            spent = BudgetSpent(f"the budget of {budget.seconds:g} seconds is spent")
            self._deadline = self.context.clock.call_at(deadline, lambda: self.stop(spent))


class _Spread:
    """Calls a function with the elements of a tuple as its arguments.

    A class and not a closure, so that it can be pickled for another process.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.func = fn

    def __call__(self, args: tuple[Any, ...]) -> Any:
        return self.func(*args)


class _AsyncSpread(_Spread):
    """The same for an `async def`."""

    async def __call__(self, args: tuple[Any, ...]) -> Any:
        return await self.func(*args)

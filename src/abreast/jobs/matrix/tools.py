"""What a matrix needs from outside: models, functions, samples, workflows.

They are passed in as `MatrixTools`, so that this package imports no other job.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, Unpack

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import CallFailed, Throttled, WouldBlock
from abreast.jobs.matrix.call_notes import NOTES, CallAttempt, CountedModel, End, LaneCount
from abreast.jobs.matrix.rows import SubResult
from abreast.models.conversation import MessageLike, conversation_text, read_messages
from abreast.models.port import Message, Model, OnText, Reply, Request, V, is_greedy
from abreast.run.calls.model import AskOptions, Caller
from abreast.run.calls.permit import LanePermit
from abreast.run.item_state import current_state
from abreast.run.run import Run

T = TypeVar("T")


class OwnWork:
    """A place on a caller's lane, held for the current item.

    A strategy as a whole holds one place, and calls through its model use that place. A block of
    `model.permit()` holds one for a part of the strategy: the strategy then holds places only
    within such blocks. A call within a block takes a place of its own, and the block gives up its
    place meanwhile, so that neither waits for the other.
    """

    def __init__(self, caller: Caller, clock: Clock, *, is_block: bool = False) -> None:
        item = current_state()
        if item is None:
            raise RuntimeError("a place on a lane is taken inside a cell")
        self._permit = LanePermit(caller, item)
        self._notes = NOTES.get()
        counted = caller.model
        self._lane = counted.lane if isinstance(counted, CountedModel) else LaneCount()
        self._clock = clock
        self.is_block = is_block
        self._began: float | None = None
        self._in_flight = 0
        self._calls = 0
        self._is_over = False

    async def take(self) -> None:
        """Wait for the place."""
        await self._permit.take()
        if not self.is_block:
            self._permit.attach()
        self._in_flight = self._lane.enter()
        self._began = self._clock.now()

    def give(self) -> None:
        """Give the place back.

        The time since it was taken counts as service time, unless a call was counted in it.
        """
        began, now = self._began, self._clock.now()
        self._permit.give(sent=began is not None)
        self.yield_to_calls()
        if began is not None and self._notes is not None:
            self._notes.attempts.append(
                CallAttempt(began, now, "done", self._in_flight, now - began)
            )

    def step_aside(self) -> None:
        """Give the place back because the strategy takes places by itself.

        Its time until now was not a request.
        """
        self.yield_to_calls()
        self._permit.give(sent=False)

    def yield_to_calls(self) -> None:
        """Stop measuring, because a call is made, which is counted and measured by itself."""
        if self._began is not None:
            self._began = None
            self._lane.leave()

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Enclose a call through the model."""
        if not self.is_block:
            if self._permit.is_governed:
                self.step_aside()
            yield
            return
        self._calls += 1
        if self._calls == 1:
            self.give()
        try:
            yield
        except asyncio.CancelledError:
            self._is_over = True
            raise
        finally:
            self._calls -= 1
            if not self._calls and not self._is_over:
                await self.take()

    def end(self) -> None:
        """Give the place back for good."""
        self._is_over = True
        self.give()


OWN_WORK: ContextVar[OwnWork | None] = ContextVar("abreast_matrix_own_work", default=None)


@asynccontextmanager
async def holding_place(caller: Caller, clock: Clock) -> AsyncIterator[None]:
    """Hold a place on the caller's lane for a whole strategy, or for a step with own requests."""
    work = OwnWork(caller, clock)
    await work.take()
    token = OWN_WORK.set(work)
    try:
        yield
    finally:
        OWN_WORK.reset(token)
        work.end()


@dataclass(slots=True)
class PermitBlock:
    """`async with model.permit():` holds a place on the model's lane for what is in the block."""

    _caller: Caller
    _clock: Clock
    _before: OwnWork | None = None
    _work: OwnWork | None = None

    async def __aenter__(self) -> None:
        """Wait for a place; raises RuntimeError within another block, which has one already."""
        self.begin(await self.take())

    async def __aexit__(self, *_: object) -> None:
        await self.give()
        self.end()

    async def take(self) -> OwnWork:
        """Wait for a place."""
        before = OWN_WORK.get()
        if before is not None and before.is_block:
            raise RuntimeError(
                "model.permit() is held already: one place is enough for what is in its block"
            )
        work = OwnWork(self._caller, self._clock, is_block=True)
        if before is not None:
            before.step_aside()
        await work.take()
        return work

    def begin(self, work: OwnWork) -> None:
        """Begin the block: what runs in this context from now on is in it."""
        self._before, self._work = OWN_WORK.get(), work
        OWN_WORK.set(work)

    async def give(self) -> None:
        """Give the place back."""
        if self._work is not None:
            self._work.end()

    def end(self) -> None:
        """End the block: what runs in this context from now on is not in it."""
        OWN_WORK.set(self._before)


class CountingModel:
    """A model wrapper that notes each request in the notes of the current cell.

    It notes when the request was sent and how many its lane had in flight.
    """

    def __init__(self, model: Model, lane: LaneCount, clock: Clock) -> None:
        """Wrap a model; all models of a lane share one count."""
        self._model = model
        self.lane = lane
        self._clock = clock
        self.name = model.name
        self.greedy = is_greedy(model)

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Call the model, and note the request."""
        notes, lane, own_work = NOTES.get(), self.lane, OWN_WORK.get()
        if own_work is not None:
            own_work.yield_to_calls()
        count, began = lane.enter(), self._clock.now()
        end: End = "fault"
        seconds = 0.0
        try:
            reply = await self._model.complete(request, hear)
        except Throttled:
            end = "throttled"
            lane.throttled += 1
            raise
        except CallFailed as error:
            if not error.retryable:  # a final answer of the provider: its time was service
                end, seconds = "done", self._clock.now() - began
            raise
        else:
            end, seconds = "done", reply.seconds
            return reply
        finally:
            lane.leave()
            if notes is not None:
                notes.attempts.append(CallAttempt(began, self._clock.now(), end, count, seconds))

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


class StrategyModel:
    """The model that an `async def` strategy gets: `await model.ask("...", step="draft")`.

    Its calls are recorded with the cell, and keep the limits of the model's lane.
    """

    def __init__(
        self, caller: Caller, options: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """`options` are the arm's parameters, which a call may override."""
        self._caller = caller
        self._clock = clock
        self._options = {word: value for word, value in options.items() if value is not None}

    @property
    def name(self) -> str:
        """`provider/model`."""
        return self._caller.name

    async def ask(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[MessageLike] | None = None,
        step: str = "",
        schema: type | Mapping[str, object] | None = None,
        **options: Unpack[AskOptions],
    ) -> str:
        """Call the model and return the reply's text.

        Args:
            prompt: the user's turn, the last one.
            messages: the turns before it, or all turns where there is no prompt.
            step: the name of the sub-result in the cell's rows.
            schema: a JSON schema that the reply must obey, or a pydantic model's class.
            **options: keywords of `Caller.ask`, by default as the study has them for the model:
                `system`, `temperature`, `seed`, `stop`, `max_tokens`, `shared_prefix`, `reasoning`,
                `thinking_tokens`, `hear`, `files`.
        """
        reply: Reply[Any] = await self.reply(
            prompt, messages=messages, step=step, schema=schema, **options
        )
        return reply.text

    async def reply(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[MessageLike] | None = None,
        step: str = "",
        schema: type[V] | Mapping[str, object] | None = None,
        **options: Unpack[AskOptions],
    ) -> Reply[V]:
        """Call the model and return the whole reply; the arguments are those of `ask`.

        With a pydantic model's class as `schema`, its `value` is one.
        """
        turns = None if messages is None else await asyncio.to_thread(read_messages, messages)
        given: dict[str, Any] = {**self._options, **options, "messages": turns}
        if schema is not None:
            given["schema"] = schema
        own_work = OWN_WORK.get()
        async with nullcontext() if own_work is None else own_work.calling():
            reply: Reply[Any] = await self._caller.ask(prompt, **given)
        notes = NOTES.get()
        if notes is not None:
            used = reply.usage
            name = step or f"call {len(notes.steps) + 1}"
            notes.steps.append(
                SubResult(
                    name,
                    _text_asked(prompt, turns or ()),
                    reply.text,
                    used.input_tokens,
                    used.output_tokens,
                    used.usd,
                    reply.seconds,
                )
            )
        return reply

    def permit(self) -> PermitBlock:
        """`async with model.permit():` holds a place on the model's lane for your own request.

        A strategy that never does this holds one for its whole run.
        """
        return PermitBlock(self._caller, self._clock)

    def held(self) -> AbstractAsyncContextManager[None]:
        """Hold a place on the model's lane for a whole strategy, unless it takes permits itself."""
        return holding_place(self._caller, self._clock)


def _text_asked(prompt: str | None, turns: Sequence[Message]) -> str:
    """What was asked, as one text."""
    return conversation_text(turns if prompt is None else (*turns, Message("user", prompt)))


class BlockingStrategyModel:
    """The model that a plain function as strategy gets: `model.ask("...")` blocks its thread.

    The arguments are those of `StrategyModel`.
    """

    def __init__(self, asked: StrategyModel, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the event loop of the run."""
        self._model = asked
        self._loop = loop
        self.name = asked.name

    def ask(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[MessageLike] | None = None,
        step: str = "",
        schema: type | Mapping[str, object] | None = None,
        **options: Unpack[AskOptions],
    ) -> str:
        """Call the model and return the reply's text."""
        return self.reply(prompt, messages=messages, step=step, schema=schema, **options).text

    def reply(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[MessageLike] | None = None,
        step: str = "",
        schema: type[V] | Mapping[str, object] | None = None,
        **options: Unpack[AskOptions],
    ) -> Reply[V]:
        """Call the model and return the whole reply."""
        return self._wait_for(
            self._model.reply(prompt, messages=messages, step=step, schema=schema, **options)
        )

    @contextmanager
    def permit(self) -> Iterator[None]:
        """`with model.permit():` holds a place on the model's lane for your own request."""
        block = self._model.permit()
        # Begun in this thread, so that calls from this thread are in the block.
        block.begin(self._wait_for(block.take()))
        try:
            yield
        finally:
            self._wait_for(block.give())
            block.end()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        with suppress(RuntimeError):  # there is no loop in this thread, as it should be
            if asyncio.get_running_loop() is self._loop:
                work.close()
                raise WouldBlock(
                    "this model blocks, which would stop the loop that it waits for: write the "
                    "strategy as `async def`, not as a function that returns a coroutine"
                )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class MatrixTools(Protocol):
    """The tools of one run of a study."""

    clock: Clock

    async def caller(self, name: str) -> Caller:
        """The model of that name for cells, counted on its lane; it is opened once."""

    async def judge(self, name: str) -> Caller:
        """The same for scores; it is available even where cells may call no model."""

    async def call(self, name: str, *given: Any) -> Any:  # noqa: ANN401 - any result of the function
        """Call `module:function`; one that is not async runs in a thread with a blocking model."""

    async def sample(self, run: Run, facts: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Draw a sample within `run`; returns `text`, `value`, `ok`."""

    async def workflow(
        self, run: Run, file: str, inputs: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Run a workflow's file within `run`; returns `text`, `value`, `ok`, `error`."""

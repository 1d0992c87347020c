"""What a matrix needs from outside: models, functions, samples, workflows.

They are passed in as `MatrixTools`, so that this package imports no other job.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import CallFailed, Throttled
from abreast.jobs.matrix.call_notes import NOTES, CallAttempt, End, LaneCount
from abreast.jobs.matrix.own_work import OWN_WORK, PermitBlock, holding_place
from abreast.jobs.matrix.rows import SubResult
from abreast.models.port import Model, OnText, Reply, Request, is_greedy
from abreast.run.calls.model import Caller
from abreast.run.run import Run

T = TypeVar("T")


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
    """The model that a user's strategy gets: `await model.ask("...", step="draft")`."""

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

    async def ask(self, prompt: str, *, step: str = "", **options: Any) -> str:
        """Call the model and return the reply's text. `step` names the sub-result."""
        return (await self.reply(prompt, step=step, **options)).text

    async def reply(self, prompt: str, *, step: str = "", **options: Any) -> Reply:
        """The whole reply."""
        own_work = OWN_WORK.get()
        async with nullcontext() if own_work is None else own_work.calling():
            reply = await self._caller.ask(prompt, **{**self._options, **options})
        notes = NOTES.get()
        if notes is not None:
            used = reply.usage
            name = step or f"call {len(notes.steps) + 1}"
            notes.steps.append(
                SubResult(
                    name,
                    prompt,
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


class BlockingStrategyModel:
    """The same for a function that is not async and runs in a thread: `model.ask("...")` blocks."""

    def __init__(self, asked: StrategyModel, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the event loop of the run."""
        self._model = asked
        self._loop = loop
        self.name = asked.name

    def ask(self, prompt: str, *, step: str = "", **options: Any) -> str:
        """Call the model and return the reply's text."""
        return self.reply(prompt, step=step, **options).text

    def reply(self, prompt: str, *, step: str = "", **options: Any) -> Reply:
        """The whole reply."""
        return self._wait_for(self._model.reply(prompt, step=step, **options))

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

"""What a matrix needs from outside: models, functions, samples, workflows.

Handed in, never imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import CallFailed, Throttled
from abreast.jobs.matrix.call_notes import NOTES, CallAttempt, End, LaneCount
from abreast.jobs.matrix.own_work import OWN_WORK, PermitBlock, holding_place
from abreast.jobs.matrix.rows import SubResult
from abreast.models.port import Hear, Model, Reply, Request
from abreast.run.calls.model import Caller
from abreast.run.run import Run

T = TypeVar("T")


class Counted:
    """A model that notes, for the cell it works for, when each request was sent and how many were under way."""

    def __init__(self, model: Model, lane: LaneCount, clock: Clock) -> None:
        """All models of a lane share its count."""
        self._model = model
        self.lane = lane
        self._clock = clock
        self.name = model.name

    def __getattr__(self, word: str) -> Any:  # noqa: ANN401 - whatever the model says of itself
        return getattr(self._model, word)

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:
        """Ask, and note it."""
        notes, lane, own = NOTES.get(), self.lane, OWN_WORK.get()
        if own is not None:
            own.yield_to_calls()
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
            if not error.retryable:  # the provider's last word: its time was service
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


class Asked:
    """The model as a strategy of one's own sees it: `await model.ask("...", step="draft")`."""

    def __init__(
        self, caller: Caller, options: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """With the arm's parameters, unless a call says otherwise."""
        self._caller = caller
        self._clock = clock
        self._options = {word: value for word, value in options.items() if value is not None}

    @property
    def name(self) -> str:
        """`provider/model`."""
        return self._caller.name

    async def ask(self, prompt: str, *, step: str = "", **options: Any) -> str:
        """The reply's text. `step` names the sub-result."""
        return (await self.reply(prompt, step=step, **options)).text

    async def reply(self, prompt: str, *, step: str = "", **options: Any) -> Reply:
        """The whole reply."""
        own = OWN_WORK.get()
        async with nullcontext() if own is None else own.calling():
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
        """`async with model.permit():` holds a place on the model's lane, for a request that you make by yourself.

        A strategy that never does this holds one for its whole run.
        """
        return PermitBlock(self._caller, self._clock)

    def held(self) -> AbstractAsyncContextManager[None]:
        """Holds a place on the model's lane for a whole strategy, unless it takes permits by itself."""
        return holding_place(self._caller, self._clock)


class AskedFromThread:
    """The same for a plain function, which runs in a thread: `model.ask("...")` waits there."""

    def __init__(self, asked: Asked, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the run's."""
        self._asked = asked
        self._loop = loop
        self.name = asked.name

    def ask(self, prompt: str, *, step: str = "", **options: Any) -> str:
        """The reply's text."""
        return self.reply(prompt, step=step, **options).text

    def reply(self, prompt: str, *, step: str = "", **options: Any) -> Reply:
        """The whole reply."""
        return self._waited(self._asked.reply(prompt, step=step, **options))

    @contextmanager
    def permit(self) -> Iterator[None]:
        """`with model.permit():` holds a place on the model's lane, for a request that you make by yourself."""
        block = self._asked.permit()
        block.begin(
            self._waited(block.take())
        )  # here, in the thread: what is asked from here is in the block
        try:
            yield
        finally:
            self._waited(block.give())
            block.end()

    def _waited(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class MatrixTools(Protocol):
    """The tools of one run of a study."""

    clock: Clock

    async def caller(self, name: str) -> Caller:
        """The model of that name, which cells ask, counted on its lane; opened once."""

    async def judge(self, name: str) -> Caller:
        """The same for scores: it is asked also where cells may ask no model."""

    async def call(self, name: str, *given: Any) -> Any:  # noqa: ANN401 - a function's own
        """Call `module:function`; a plain one in a thread, with a model that waits there."""

    async def sample(self, run: Run, facts: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Draw a sample within `run`; `text`, `value`, `ok`."""

    async def workflow(
        self, run: Run, file: str, inputs: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Run a workflow's file within `run`; `text`, `value`, `ok`, `error`."""


OnRow = Callable[[str, bool], None]

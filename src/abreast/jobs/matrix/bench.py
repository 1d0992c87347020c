"""What a matrix needs from outside: models, functions, samples, workflows. Handed in, never imported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from abreast.core.clock import Clock
from abreast.core.errors import CallFailed, Throttled
from abreast.jobs.matrix.rows import SubResult
from abreast.models.port import Hear, Model, Reply, Request
from abreast.run.call import Caller
from abreast.run.scope import Run

End: TypeAlias = Literal["done", "throttled", "fault"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request on the wire."""

    began: float
    ended: float
    end: End
    in_flight: int
    seconds: float


@dataclass(slots=True)
class Notes:
    """What happened on the wire for one cell."""

    began: float
    attempts: list[Attempt] = field(default_factory=list)
    steps: list[SubResult] = field(default_factory=list)
    earlier: Mapping[str, float] = field(default_factory=dict)
    """Seconds that calls took which an earlier driver recorded: they are not made again."""

    def times(self) -> dict[str, float]:
        """The seconds of the cell, apart: they add up to `wall_s` where its calls came one after the other."""
        found = {"queue_s": 0.0, "hold_s": 0.0, "backoff_s": 0.0, "service_s": 0.0, **self.earlier}
        before, why = self.began, "queue_s"
        for one in sorted(self.attempts, key=lambda attempt: attempt.began):
            found[why] += max(0.0, one.began - before)
            spent = max(0.0, one.ended - one.began)
            own = min(one.seconds, spent) if one.end == "done" else spent
            found[_SPENT[one.end]] += own
            found["queue_s"] += spent - own
            before, why = max(before, one.ended), _AFTER[one.end]
        return {**found, "wall_s": before - self.began + sum(self.earlier.values())}


_SPENT: dict[End, str] = {"done": "service_s", "throttled": "hold_s", "fault": "backoff_s"}
_AFTER: dict[End, str] = {"done": "queue_s", "throttled": "hold_s", "fault": "backoff_s"}

NOTES: ContextVar[Notes | None] = ContextVar("abreast_matrix_notes", default=None)


class Counted:
    """A model that notes, for the cell it works for, when each request was sent and how many were under way."""

    def __init__(self, model: Model, lane: LaneCount, clock: Clock) -> None:
        """All models of a lane share its count."""
        self._model = model
        self._lane = lane
        self._clock = clock
        self.name = model.name

    def __getattr__(self, word: str) -> Any:  # noqa: ANN401 - whatever the model says of itself
        return getattr(self._model, word)

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:
        """Ask, and note it."""
        notes, lane = NOTES.get(), self._lane
        lane.now += 1
        lane.peak = max(lane.peak, lane.now)
        count, began = lane.now, self._clock.now()
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
            lane.now -= 1
            if notes is not None:
                notes.attempts.append(Attempt(began, self._clock.now(), end, count, seconds))

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


@dataclass(slots=True)
class LaneCount:
    """How many requests of a lane are under way, and were at most."""

    now: int = 0
    peak: int = 0
    throttled: int = 0


class Asked:
    """The model as a strategy of one's own sees it: `await model.ask("...", step="draft")`."""

    def __init__(self, caller: Caller, options: Mapping[str, Any]) -> None:
        """With the arm's parameters, unless a call says otherwise."""
        self._caller = caller
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
        reply = await self._caller.ask(prompt, **{**self._options, **options})
        notes = NOTES.get()
        if notes is not None:
            used = reply.usage
            name = step or f"call {len(notes.steps) + 1}"
            notes.steps.append(SubResult(
                name, prompt, reply.text, used.input_tokens, used.output_tokens, used.usd, reply.seconds,
            ))  # fmt: skip
        return reply


class AskedFromThread:
    """The same for a plain function, which runs in a thread: `model.ask("...")` waits there."""

    def __init__(self, asked: Asked, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the run's."""
        self._asked = asked
        self._loop = loop
        self.name = asked.name

    def ask(self, prompt: str, *, step: str = "", **options: Any) -> str:
        """The reply's text."""
        return asyncio.run_coroutine_threadsafe(self._asked.ask(prompt, step=step, **options), self._loop).result()


class Bench(Protocol):
    """The tools of one run of a study."""

    clock: Clock

    async def caller(self, name: str) -> Caller:
        """The model of that name, counted on its lane; opened once."""

    async def call(self, name: str, *given: Any) -> Any:  # noqa: ANN401 - a function's own
        """Call `module:function`; a plain one in a thread, with a model that waits there."""

    async def sample(self, run: Run, facts: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Draw a sample within `run`; `text`, `value`, `ok`."""

    async def workflow(self, run: Run, file: str, inputs: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Run a workflow's file within `run`; `text`, `value`, `ok`, `error`."""


OnRow = Callable[[str, bool], None]

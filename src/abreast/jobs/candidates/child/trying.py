"""Calls the target with inputs that no test has: each alone, within a bound of its own if it is the original."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

from abreast.jobs.candidates.child.build import Unbuildable, build
from abreast.jobs.candidates.child.capture import MOST_OF_A_CALL, Function, Recorder
from abreast.jobs.candidates.child.channel import Channel
from abreast.jobs.candidates.values.invocation import Invocation, encode, observe, observe_async

_BOUND = 500  # values of an iterator
_ENDING = 20


class TrialTooLong(BaseException):
    """The input keeps the original busy for longer than is worth waiting."""


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[list[bool]]:
    """Raise TooLong inside after so many seconds of CPU, and say that it was; 0 is for ever.

    Not by the clock: others are busy too. And the function, or the one who observes it, may catch
    what is raised. What is busy in C, and never comes back to Python to have it raised, ends the
    process after `_ENDING` times as long.
    """
    rung: list[bool] = []

    def ring(*_: object) -> None:
        rung.append(True)
        raise TrialTooLong

    before = signal.signal(signal.SIGPROF, ring)
    last = signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, _ENDING * seconds)
    try:
        yield rung
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGPROF, before)
        signal.signal(signal.SIGVTALRM, last)


class InputTrial:
    """The inputs of one run: `{"seconds": ..., "calls": [{"name", "self", "args", "kwargs"}]}`."""

    def __init__(self, channel: Channel, recorder: Recorder) -> None:
        self._channel, self._recorder = channel, recorder

    def run(
        self, inputs: dict[str, Any], module: ModuleType, qualname: str, function: Function
    ) -> None:
        """Call the function with each; what can't be made or ended is said, and the next comes."""
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 3_000))
        for one in inputs["calls"]:
            name = str(one["name"])
            self._channel.say("trying", name)
            try:
                bound = self._bound(one, module, qualname, function)
                args = cast("list[object]", build(one["args"]))
                kwargs = cast("dict[str, object]", build(one["kwargs"]))
            except Unbuildable as reason:
                self._channel.say("dropped", [name, f"it can't be made again ({reason})"])
                continue
            data = b""
            with contextlib.suppress(TrialTooLong), _within(float(inputs["seconds"])) as rung:
                data = encode([self._observed(name, bound, args, kwargs)])
            if rung:
                self._channel.say("dropped", [name, "it takes the original too long"])
            elif len(data) > MOST_OF_A_CALL:
                self._channel.say("dropped", [name, "what it does is too large"])
            else:
                self._channel.say("call", data.decode("ascii"))

    def _bound(
        self, one: dict[str, Any], module: ModuleType, qualname: str, function: Function
    ) -> Function:
        """The function, bound to what it is a method of."""
        *path, name = qualname.split(".")
        if not path:
            return function
        owner: Any = module
        for part in path:
            owner = getattr(owner, part)
        held = inspect.getattr_static(owner, name)
        if isinstance(held, staticmethod):
            return function
        if isinstance(held, classmethod):
            return function.__get__(owner)  # type: ignore[no-any-return] # a function binds
        return function.__get__(build(one["self"]))  # type: ignore[no-any-return]

    def _observed(
        self, name: str, function: Function, args: list[object], kwargs: dict[str, Any]
    ) -> Invocation:
        with self._recorder.apart():
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                return asyncio.run(observe_async(name, function, *args, bound=_BOUND, **kwargs))
            return observe(name, function, *args, bound=_BOUND, **kwargs)

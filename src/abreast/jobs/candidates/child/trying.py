"""Calls the target with generated inputs, each with a CPU limit of its own for the original."""

import asyncio
import contextlib
import functools
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

_MAX_VALUES = 500  # of an iterator
_KILL_FACTOR = 20  # times the CPU limit, after which the process is killed


class TrialTooLong(BaseException):
    """An input takes the original longer than its CPU limit."""


@contextlib.contextmanager
def _cpu_limit(seconds: float) -> Iterator[list[bool]]:
    """Raise `TrialTooLong` in the block after so many seconds of CPU; 0 means no limit.

    CPU time is used because other processes may be busy. The list is not empty after the limit
    expired: the function, or the code that observes it, may catch the exception. Code in C that
    never returns to Python ends the process after `_KILL_FACTOR` times as long.
    """
    expired: list[bool] = []

    def expire(*_: object) -> None:
        expired.append(True)
        raise TrialTooLong

    before = signal.signal(signal.SIGPROF, expire)
    last = signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, _KILL_FACTOR * seconds)
    try:
        yield expired
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
        """Call the function with each input; report those that can't be built or do not end."""
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 3_000))
        for one in inputs["calls"]:
            name = str(one["name"])
            self._channel.send("trying", name)
            try:
                bound = self._bind(one, module, qualname, function)
                args = cast("list[object]", build(one["args"]))
                kwargs = cast("dict[str, object]", build(one["kwargs"]))
            except Unbuildable as reason:
                self._channel.send("dropped", [name, f"it can't be made again ({reason})"])
                continue
            data = b""
            with contextlib.suppress(TrialTooLong), _cpu_limit(float(inputs["seconds"])) as expired:
                data = encode([self._observe(name, bound, args, kwargs)])
            if expired:
                self._channel.send("dropped", [name, "it takes the original too long"])
            elif len(data) > MOST_OF_A_CALL:
                self._channel.send("dropped", [name, "what it does is too large"])
            else:
                self._channel.send("call", data.decode("ascii"))

    def _bind(
        self, one: dict[str, Any], module: ModuleType, qualname: str, function: Function
    ) -> Function:
        """Return the function, bound to its instance or class if it is a method."""
        *path, name = qualname.split(".")
        if not path:
            return function
        owner: Any = functools.reduce(getattr, path, module)
        held = inspect.getattr_static(owner, name)
        if isinstance(held, staticmethod):
            return function
        if isinstance(held, classmethod):
            return function.__get__(owner)  # type: ignore[no-any-return] # a function binds
        return function.__get__(build(one["self"]))  # type: ignore[no-any-return] # a function binds

    def _observe(
        self, name: str, function: Function, args: list[object], kwargs: dict[str, Any]
    ) -> Invocation:
        with self._recorder.untraced():
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                return asyncio.run(
                    observe_async(name, function, *args, bound=_MAX_VALUES, **kwargs)
                )
            return observe(name, function, *args, bound=_MAX_VALUES, **kwargs)

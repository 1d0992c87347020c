"""Puts a watched function around another one: to whoever asks it is the same kind of function."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Generator
from types import FunctionType
from typing import ClassVar

from abreast.jobs.candidates.child.capture import Function, Recorder


class CallDesk:
    """Where a watched function finds itself.

    A class is portrayed by its name: so an object that holds the function, as a handler or as a
    bound method, looks the same whichever code is behind it, and whatever was noted so far.
    """

    held: ClassVar[list[tuple[Function, Recorder]]] = []

    @classmethod
    def function(cls, value: object) -> object:
        """What is behind a watched function; any other value as it is."""
        number = vars(value).get("__watched__") if isinstance(value, FunctionType) else None
        return cls.held[number][0] if isinstance(number, int) and number < len(cls.held) else value


def watched(function: Function, recorder: Recorder, *, method: bool) -> Function:
    """The function, watched; to whoever asks it is the same kind of function."""
    number = len(CallDesk.held)
    CallDesk.held.append((function, recorder))

    def plain(*args: object, **kwargs: object) -> object:
        function, recorder = CallDesk.held[number]
        call = recorder.begin(args, kwargs, method=method)
        if call is None:
            return function(*args, **kwargs)
        with call.running():
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                call.raised(error)
                raise
        return call.hand_on(result)

    made = functools.wraps(function)(_alike(function, plain))
    made.__watched__ = number  # type: ignore[attr-defined] # a function of ours
    with contextlib.suppress(TypeError, ValueError):  # something of C that tells none
        made.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    del made.__wrapped__
    return made


def _alike(function: Function, plain: Function) -> Function:
    if inspect.iscoroutinefunction(function):

        async def coroutine(*args: object, **kwargs: object) -> object:
            return await plain(*args, **kwargs)

        return coroutine
    if inspect.isasyncgenfunction(function):

        async def async_generator(*args: object, **kwargs: object) -> AsyncIterator[object]:
            values = plain(*args, **kwargs)
            try:
                async for value in values:
                    yield value
            finally:
                await values.aclose()

        return async_generator
    if inspect.isgeneratorfunction(function):

        def generator(*args: object, **kwargs: object) -> Generator[object, object, object]:
            return (yield from plain(*args, **kwargs))

        return generator
    return plain

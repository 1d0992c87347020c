"""Wraps the target in a traced function of the same kind.

The code of the wrapper is part of the snapshot of every value that holds the target: a change here,
of names too, makes such values differ from those in traces recorded before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Generator
from types import FunctionType
from typing import ClassVar

from abreast.jobs.candidates.child.capture import Function, Recorder


class CallDesk:
    """The table in which a traced function finds the original one and its recorder.

    It is a class because the snapshot of a class is its name: so a value that holds the function,
    as a handler or a bound method, has the same snapshot with any code behind it and any state of
    the recorder.
    """

    held: ClassVar[list[tuple[Function, Recorder]]] = []

    @classmethod
    def function(cls, value: object) -> object:
        """Return the original of a traced function; any other value as it is."""
        number = vars(value).get("__watched__") if isinstance(value, FunctionType) else None
        return cls.held[number][0] if isinstance(number, int) and number < len(cls.held) else value


def watched(function: Function, recorder: Recorder, *, method: bool) -> Function:
    """Return a traced function of the same kind (plain, generator, async) as `function`."""
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
    made.__watched__ = number  # type: ignore[attr-defined] # any function takes attributes
    with contextlib.suppress(TypeError, ValueError):  # a function in C without a signature
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

"""Wraps the target in a traced function of the same kind, and puts that in its place.

The code of the wrapper is part of the snapshot of every value that holds the target: a change here,
of names too, makes such values differ from those in traces recorded before.
"""

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Generator
from types import FunctionType, ModuleType
from typing import ClassVar, cast

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


# --- in the target's module


class TargetMissing(Exception):
    """The module has no such function; the message says what it has."""


def find(module: ModuleType, qualname: str) -> tuple[object, str, object]:
    """Return the target's owner, its name there, and the target without calling a descriptor."""
    *path, name = qualname.split(".")
    owner: object = module
    for part in path:
        owner = vars(owner).get(part)
        if not isinstance(owner, type):
            raise TargetMissing(f"{module.__name__} has no class {part}")
    if name not in vars(owner):
        raise TargetMissing(f"{module.__name__} has no {qualname}")
    return owner, name, vars(owner)[name]


def install(module: ModuleType, qualname: str, recorder: Recorder) -> Function:
    """Trace the target of a module that was just executed.

    Returns the original function. Raises `TargetMissing`.
    """
    owner, name, held = find(module, qualname)
    inner, made = _trace_held(held, recorder, in_class=owner is not module)
    setattr(owner, name, made)
    for holder in (module, *(one for one in vars(module).values() if isinstance(one, type))):
        if holder is module or holder.__module__ == module.__name__:
            _replace_references(holder, held, made)
    return inner


def _replace_references(holder: object, held: object, made: object) -> None:
    """Replace it under other names and in lists and dicts too, such as registries of functions."""
    for key, value in list(vars(holder).items()):
        if value is held:
            setattr(holder, key, made)
        elif type(value) is list:
            value[:] = [made if one is held else one for one in value]
        elif type(value) is dict:
            value.update({other: made for other, one in value.items() if one is held})


def _trace_held(held: object, recorder: Recorder, *, in_class: bool) -> tuple[Function, object]:
    if isinstance(held, staticmethod):
        return held.__func__, staticmethod(watched(held.__func__, recorder, method=False))
    if isinstance(held, classmethod):
        return held.__func__, classmethod(watched(held.__func__, recorder, method=True))
    if isinstance(held, property):
        if held.fget is None:
            raise TargetMissing("the property can't be read")
        getter = watched(held.fget, recorder, method=True)
        return held.fget, property(getter, held.fset, held.fdel, held.__doc__)
    if isinstance(held, type) or not callable(held):
        raise TargetMissing(f"it is a {type(held).__name__}, which is no function")
    function = cast("Function", held)
    return function, watched(function, recorder, method=in_class)

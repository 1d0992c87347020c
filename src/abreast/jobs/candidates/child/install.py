"""Replaces the target by a traced function, everywhere in its module."""

from __future__ import annotations

from types import ModuleType
from typing import cast

from abreast.jobs.candidates.child.capture import Function, Recorder
from abreast.jobs.candidates.child.wrapping import watched


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
    held = vars(owner).get(name, _MISSING)
    if held is _MISSING:
        raise TargetMissing(f"{module.__name__} has no {qualname}")
    return owner, name, held


_MISSING = object()


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
    """Return the plain function and its traced replacement, as the same kind of descriptor."""
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

"""Puts the watched function in the target's place: where it is defined, and wherever its module already holds it."""

from __future__ import annotations

from types import ModuleType
from typing import cast

from abreast.jobs.candidates.child.capture import Function, Recorder
from abreast.jobs.candidates.child.wrapping import watched


class TargetMissing(Exception):
    """The module has no such function; the message says what is there."""


def find(module: ModuleType, qualname: str) -> tuple[object, str, object]:
    """Who holds the target, under which name, and the target as it is held: before any descriptor is asked."""
    *path, name = qualname.split(".")
    owner: object = module
    for part in path:
        owner = vars(owner).get(part)
        if not isinstance(owner, type):
            raise TargetMissing(f"{module.__name__} has no class {part}")
    held = vars(owner).get(name, _NOTHING)
    if held is _NOTHING:
        raise TargetMissing(f"{module.__name__} has no {qualname}")
    return owner, name, held


_NOTHING = object()


def install(module: ModuleType, qualname: str, recorder: Recorder) -> Function:
    """Watch the target of a module that was just carried out.

    Returns the function as it was. Raises TargetMissing.
    """
    owner, name, held = find(module, qualname)
    inner, made = _watched(held, recorder, in_class=owner is not module)
    setattr(owner, name, made)
    for holder in (module, *(one for one in vars(module).values() if isinstance(one, type))):
        if holder is module or holder.__module__ == module.__name__:
            _replace(holder, held, made)
    return inner


def _replace(holder: object, held: object, made: object) -> None:
    """Also where it stands under another name, and in lists and dicts: a registry has taken it before we came."""
    for key, value in list(vars(holder).items()):
        if value is held:
            setattr(holder, key, made)
        elif type(value) is list:
            value[:] = [made if one is held else one for one in value]
        elif type(value) is dict:
            value.update({other: made for other, one in value.items() if one is held})


def _watched(held: object, recorder: Recorder, *, in_class: bool) -> tuple[Function, object]:
    """The function inside, and what stands for it, in the same wrapping."""
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

"""What the run has changed around it: clocks, pytest, the tests, and whatever survives from one call to the next.

All is told as it is; the judge takes off what the original changes as well.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import itertools
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import _lru_cache_wrapper
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from abreast.jobs.candidates.child.paths import Places
from abreast.jobs.candidates.child.wrapping import CallDesk
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot

_WATCHED = (
    *(
        "time",
        "builtins",
        "gc",
        "unittest",
        "unittest.case",
        "unittest.mock",
        "math",
        "random",
        "statistics",
        "json",
    ),
    *("functools", "operator", "itertools", "collections", "copy", "datetime", "asyncio"),
    *(
        "pytest",
        "_pytest.runner",
        "_pytest.python",
        "_pytest.outcomes",
        "_pytest.main",
        "_pytest.reports",
    ),
    *(
        "_pytest.assertion",
        "_pytest.assertion.rewrite",
        "_pytest.assertion.util",
        "_pytest.python_api",
    ),
    *(
        "_pytest.fixtures",
        "_pytest.raises",
        "_pytest.recwarn",
        "_pytest.monkeypatch",
        "_pytest.unittest",
    ),
)
_MOST_MODULES = 200
_MOST_PARTS = 20_000
_OFTEN_SET = frozenset(
    {
        *(
            "_",
            "__builtins__",
            "__warningregistry__",
            "__cached__",
            "__file__",
            "__spec__",
            "__loader__",
        ),
        *("last_type", "last_value", "last_traceback", "last_exc"),  # of sys, when a test fails
    }
)


class Seals:
    """Who stands under each name of the modules that all rely on, when it was made."""

    def __init__(self) -> None:
        self._held = {
            name: dict(vars(module)) for name in _WATCHED if (module := _loaded(name)) is not None
        }
        self._names: dict[str, frozenset[str]] = {}

    def look(self) -> None:
        """Which names there are in all modules that are loaded by now."""
        self._names = {
            name: frozenset(vars(module))
            for name, module in list(sys.modules.items())
            if _is_module(module)
        }

    def broken(self, places: Places) -> list[str]:
        """The names under which something else stands now, and those that are new in others' modules."""
        found: list[str] = []
        for name, before in self._held.items():
            module = sys.modules.get(name)
            now = vars(module) if module is not None else {}
            found += [f"{name}.{key}" for key, value in before.items() if now.get(key) is not value]
            found += [
                f"{name}.{key}"
                for key, value in now.items()
                if key not in before and _is_data(key, value)
            ]
        for name, known in self._names.items():
            module = sys.modules.get(name)
            if (
                name not in self._held
                and module is not None
                and _is_module(module)
                and not places.owns(module)
            ):
                found += [
                    f"{name}.{key}"
                    for key, one in vars(module).items()
                    if key not in known and _is_data(key, one)
                ]
        return sorted(set(found) - {f"{name}.{key}" for name in self._held for key in _OFTEN_SET})


def _loaded(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # another version of pytest
        return None


def _is_module(value: object) -> bool:
    return type(value) is ModuleType


def _is_data(name: str, value: object) -> bool:
    """Whether a new name is more than what a module of the standard library imports when it is first needed."""
    lazy = ModuleType | BuiltinFunctionType | FunctionType | type
    return name not in _OFTEN_SET and not name.startswith("__") and not isinstance(value, lazy)


# --- code


def code_digest(code: CodeType) -> str:
    """A name for what a code does, wherever it was written."""
    held = hashlib.sha256(code.co_code)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            held.update(code_digest(one).encode())
        elif not isinstance(one, str) or len(one) < 1_000:  # noqa: PLR2004 - not the long texts of assertions
            held.update(
                repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one).encode(
                    "utf-8", "replace"
                )
            )
    held.update(
        repr((code.co_names, code.co_varnames, code.co_freevars)).encode("utf-8", "replace")
    )
    return held.hexdigest()[:16]


def functions_of(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions that a module defines, those of its classes too."""
    name = module.__name__
    for key, value in list(vars(module).items()):
        plain = _function(value)
        if plain is not None and plain.__module__ == name:
            yield key, plain
        elif isinstance(value, type) and value.__module__ == name:
            for inner, held in list(vars(value).items()):
                plain = _function(held)
                if plain is not None:
                    yield f"{key}.{inner}", plain


def _function(value: object) -> FunctionType | None:
    for _ in range(5):
        value = CallDesk.function(value)
        if isinstance(value, staticmethod | classmethod | MethodType):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, FunctionType) and not hasattr(value, "__wrapped__"):
            return value
        else:
            value = getattr(value, "__wrapped__", None) if not isinstance(value, type) else None
    return None


def modules_of(places: Places) -> list[ModuleType]:
    """The project's own modules, as far as they are loaded."""
    loaded: list[Any] = list(sys.modules.values())  # somebody may have put anything there
    return [one for one in loaded if isinstance(one, ModuleType) and places.owns(one)][
        :_MOST_MODULES
    ]


def codes(places: Places, target: str) -> dict[str, str]:
    """What each function of the project does, by module and name, but for those in the target's file."""
    found: dict[str, str] = {}
    for module in modules_of(places):
        if os.path.realpath(str(module.__file__)) != target:
            found[f"{module.__name__}::"] = ""  # it was loaded
            held = functions_of(module)
            found |= {
                f"{module.__name__}::{name}": code_digest(function.__code__)
                for name, function in held
            }
    return found


# --- state


def state(places: Places) -> dict[str, tuple[str, int]]:
    """All that outlives a call in the project's modules: by name, a digest of it and how many parts it has."""
    found: dict[str, tuple[str, int]] = {}
    gc.collect()  # a cache inside of a call is gone with it, if the collector has been there
    for module in modules_of(places):
        found[f"{module.__name__}::"] = ("", 0)  # it was loaded by then
        for name, value in _values("", vars(module), module.__name__):
            found[f"{module.__name__}::{name}"] = _portrayed(value)
    found["os::"], found["os::environ"] = ("", 0), _portrayed(_environment())
    return found | {name: (str(size), size) for name, size in _caches(places)}


def _environment() -> dict[str, str]:
    """Without what pytest itself notes there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def _values(above: str, space: Mapping[str, object], module: str) -> Iterator[tuple[str, object]]:
    for key, value in list(space.items()):
        name = f"{above}{key}"
        if key.startswith(("__", "@")) or isinstance(value, ModuleType | _lru_cache_wrapper):
            continue
        function = _function(value)
        if function is not None:
            if function.__module__ == module:
                cells = [_content(cell) for cell in function.__closure__ or ()]
                yield (
                    name,
                    [
                        function.__defaults__,
                        function.__kwdefaults__,
                        _noted(value),
                        *map(_outline, cells),
                    ],
                )
        elif isinstance(value, type):
            if value.__module__ == module and not above:
                yield from _values(f"{name}.", vars(value), module)
        elif (
            type(value) is list or type(value) is tuple
        ):  # not of a class that may hide what it holds
            yield name, [_outlined(one) for one in value]
        elif type(value) is dict:
            yield name, {key: _outlined(one) for key, one in value.items()}
        else:
            yield name, _opened(value)


def _opened(value: object) -> object:
    """What is kept where a portrait doesn't look: in a generator's variables, a context variable, a thread's own."""
    if isinstance(value, GeneratorType):
        return dict(value.gi_frame.f_locals) if value.gi_frame is not None else None
    if isinstance(value, ContextVar):
        with contextlib.suppress(LookupError):  # it has no value here, and no default
            return value.get()
        return None
    if isinstance(value, threading.local):
        return dict(vars(value))
    return repr(value) if type(value) is itertools.count else value


def _outlined(value: object) -> object:
    """A function in a registry is its name: the target there is being watched, which changes it."""
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, FunctionType) else value


def _noted(value: object) -> list[dict[str, object]]:
    """The attributes of a function, and of what is wrapped in it."""
    found: list[dict[str, object]] = []
    while isinstance(value, FunctionType):
        held = dict(vars(value))
        inner = CallDesk.function(value)
        value = inner if inner is not value else held.get("__wrapped__")
        held = {
            name: one
            for name, one in held.items()
            if name not in {"__wrapped__", "__signature__", "__watched__"}
        }
        found.append(held)
    return found


def _content(cell: object) -> object:
    try:
        return getattr(cell, "cell_contents")  # noqa: B009 - of any cell
    except ValueError:  # nothing was assigned yet
        return None


def _outline(value: object) -> object:
    """A function in a closure is its state, not its code, and no further."""
    if isinstance(value, FunctionType):
        return [_content(cell) for cell in value.__closure__ or () if not callable(_content(cell))]
    return value


def _portrayed(value: object) -> tuple[str, int]:
    portrait = take_snapshot(value, consume=False, nodes=_MOST_PARTS)
    return hashlib.sha256(pack(portrait)).hexdigest()[:16], len(portrait.nodes)


def _caches(places: Places) -> Iterator[tuple[str, int]]:
    """The caches of functools, wherever they hide, of functions of the project."""
    for one in gc.get_objects():
        if type(one) is _lru_cache_wrapper:
            function = getattr(one, "__wrapped__", None)
            if isinstance(function, FunctionType) and places.holds(function.__code__.co_filename):
                yield (
                    f"{function.__module__}::the cache of {function.__qualname__}",
                    one.cache_info().currsize,
                )


def grown(
    before: Mapping[str, tuple[str, int]], after: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[int, int]]:
    """What changed from one look to the other, with its sizes.

    What came with a later import is not among it.
    """
    none = ("", 0)
    return {
        name: (before.get(name, none)[1], size)
        for name, (digest, size) in after.items()
        if name.partition("::")[0] + "::" in before and before.get(name, none) != (digest, size)
        if size or name in before
    }

"""Finds what a run has changed around it: clocks, pytest, the tests, state between calls.

All changes are reported; the parent subtracts those that the original makes too.
"""

import contextlib
import gc
import hashlib
import importlib
import itertools
import os
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from functools import _lru_cache_wrapper
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from abreast.jobs.candidates.child.paths import Places
from abreast.jobs.candidates.child.wrapping import CallDesk
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot

_GUARDED_MODULES = (
    *("time", "builtins", "gc", "math", "random", "json"),
    *("functools", "operator", "itertools", "collections", "copy", "datetime"),
)
# These take three times as long to import as everything else that the child needs.
_GUARDED_IN_TESTS = (
    *("unittest", "unittest.case", "unittest.mock", "statistics", "asyncio"),
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
_MAX_MODULES = 200
_MAX_PARTS = 20_000
_IGNORED_NAMES = frozenset(
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


class PatchDetector:
    """Remembers what the names of important modules are bound to, and finds those rebound later."""

    def __init__(self, source: str | None = None) -> None:
        """`source` is the target's module, for a run without tests; None for one with tests.

        Without tests, modules that the source doesn't mention are neither imported nor guarded.
        """
        mentioned = [
            name
            for name in _GUARDED_IN_TESTS
            if source is None or name.split(".")[0].lstrip("_") in source
        ]
        self._originals = {
            name: dict(vars(module))
            for name in (*_GUARDED_MODULES, *mentioned)
            if (module := _import_if_present(name)) is not None
        }
        self._names: dict[str, frozenset[str]] = {}

    def record_names(self) -> None:
        """Remember which names all modules loaded so far have."""
        self._names = {
            name: frozenset(vars(module))
            for name, module in list(sys.modules.items())
            if type(module) is ModuleType
        }

    def rebound_names(self, places: Places) -> list[str]:
        """Return the names that are bound to another object now, and new names in other modules."""
        found: list[str] = []
        for name, before in self._originals.items():
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
                name not in self._originals
                and type(module) is ModuleType
                and not places.owns(module)
            ):
                found += [
                    f"{name}.{key}"
                    for key, one in vars(module).items()
                    if key not in known and _is_data(key, one)
                ]
        return sorted(
            set(found) - {f"{name}.{key}" for name in self._originals for key in _IGNORED_NAMES}
        )


def _import_if_present(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # this version of pytest has no such module
        return None


def _is_data(name: str, value: object) -> bool:
    """Whether a new name is data, not something that a module imported lazily."""
    lazy = ModuleType | BuiltinFunctionType | FunctionType | type
    return name not in _IGNORED_NAMES and not name.startswith("__") and not isinstance(value, lazy)


# --- code


def code_digest(code: CodeType) -> str:
    """Return a digest of what a code object does, independent of where it was written."""
    held = hashlib.sha256(code.co_code)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            held.update(code_digest(one).encode())
        elif not isinstance(one, str) or len(one) < 1_000:  # noqa: PLR2004 - not the long messages of assertions
            held.update(
                repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one).encode(
                    "utf-8", "replace"
                )
            )
    held.update(
        repr((code.co_names, code.co_varnames, code.co_freevars)).encode("utf-8", "replace")
    )
    return held.hexdigest()[:16]


def _functions_of(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    name = module.__name__
    for key, value in list(vars(module).items()):
        plain = _unwrap_function(value)
        if plain is not None and plain.__module__ == name:
            yield key, plain
        elif isinstance(value, type) and value.__module__ == name:
            for inner, held in list(vars(value).items()):
                if (plain := _unwrap_function(held)) is not None:
                    yield f"{key}.{inner}", plain


def _unwrap_function(value: object) -> FunctionType | None:
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
    """Return the loaded modules of the project."""
    loaded: list[Any] = list(sys.modules.values())  # a program may have put any object there
    return [one for one in loaded if isinstance(one, ModuleType) and places.owns(one)][
        :_MAX_MODULES
    ]


def code_digests(places: Places, own: Collection[str]) -> dict[str, str]:
    """Return code digests of the project's functions by name, except those in the own files."""
    found: dict[str, str] = {}
    for module in modules_of(places):
        if os.path.realpath(str(module.__file__)) not in own:
            found[f"{module.__name__}::"] = ""  # it was loaded
            for name, function in _functions_of(module):
                found[f"{module.__name__}::{name}"] = code_digest(function.__code__)
    return found


# --- state


def state_digests(places: Places) -> dict[str, tuple[str, int]]:
    """Return all state of the project's modules that outlives a call.

    By name: a digest of the value and its number of parts.
    """
    found: dict[str, tuple[str, int]] = {}
    gc.collect()  # removes caches that only a finished call referred to
    for module in modules_of(places):
        found[f"{module.__name__}::"] = ("", 0)  # it was loaded by then
        for name, value in _kept_values("", vars(module), module.__name__):
            found[f"{module.__name__}::{name}"] = _digest(value)
    # The environment without pytest's own variables.
    variables = {name: one for name, one in os.environ.items() if not name.startswith("PYTEST_")}
    found["os::"], found["os::environ"] = ("", 0), _digest(variables)
    return found | {name: (str(size), size) for name, size in _cache_sizes(places)}


def _kept_values(
    above: str, space: Mapping[str, object], module: str
) -> Iterator[tuple[str, object]]:
    for key, value in list(space.items()):
        name = f"{above}{key}"
        if key.startswith(("__", "@")) or isinstance(value, ModuleType | _lru_cache_wrapper):
            continue
        if (function := _unwrap_function(value)) is not None:
            if function.__module__ == module:
                cells = [_cell_content(cell) for cell in function.__closure__ or ()]
                yield (
                    name,
                    [
                        function.__defaults__,
                        function.__kwdefaults__,
                        _function_attributes(value),
                        *map(_function_as_state, cells),
                    ],
                )
        elif isinstance(value, type):
            if value.__module__ == module and not above:
                yield from _kept_values(f"{name}.", vars(value), module)
        # Not instances of subclasses, which may hide their content.
        elif type(value) is list or type(value) is tuple:
            yield name, [_function_as_name(one) for one in value]
        elif type(value) is dict:
            yield name, {key: _function_as_name(one) for key, one in value.items()}
        else:
            yield name, _hidden_content(value)


def _hidden_content(value: object) -> object:
    """Return content that a snapshot does not cover: of generators, context variables, locals."""
    if isinstance(value, GeneratorType):
        return dict(value.gi_frame.f_locals) if value.gi_frame is not None else None
    if isinstance(value, ContextVar):
        with contextlib.suppress(LookupError):  # it has no value in this context, and no default
            return value.get()
        return None
    if isinstance(value, threading.local):
        return dict(vars(value))
    return repr(value) if type(value) is itertools.count else value


def _function_as_name(value: object) -> object:
    """Replace a function in a list or dict by its name: tracing replaces the target there."""
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, FunctionType) else value


def _function_attributes(value: object) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    while isinstance(value, FunctionType):
        held = dict(vars(value))
        inner = CallDesk.function(value)
        value = inner if inner is not value else held.get("__wrapped__")
        ignored = {"__wrapped__", "__signature__", "__watched__"}
        found.append({name: one for name, one in held.items() if name not in ignored})
    return found


def _cell_content(cell: object) -> object:
    try:
        return getattr(cell, "cell_contents")  # noqa: B009 - a cell, typed as object
    except ValueError:  # nothing was assigned yet
        return None


def _function_as_state(value: object) -> object:
    """Replace a function in a closure by its own closure's values, one level deep."""
    if not isinstance(value, FunctionType):
        return value
    return [one for one in map(_cell_content, value.__closure__ or ()) if not callable(one)]


def _digest(value: object) -> tuple[str, int]:
    snapshot = take_snapshot(value, consume=False, nodes=_MAX_PARTS)
    return hashlib.sha256(pack(snapshot)).hexdigest()[:16], len(snapshot.nodes)


def _cache_sizes(places: Places) -> Iterator[tuple[str, int]]:
    for one in gc.get_objects():
        if type(one) is _lru_cache_wrapper:
            function = getattr(one, "__wrapped__", None)
            if isinstance(function, FunctionType) and places.holds(function.__code__.co_filename):
                yield (
                    f"{function.__module__}::the cache of {function.__qualname__}",
                    one.cache_info().currsize,
                )


def changed_state(
    before: Mapping[str, tuple[str, int]], after: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[int, int]]:
    """Return what changed between two states, with its sizes, except in modules imported later."""
    none = ("", 0)
    return {
        name: (before.get(name, none)[1], size)
        for name, (digest, size) in after.items()
        if name.partition("::")[0] + "::" in before and before.get(name, none) != (digest, size)
        if size or name in before
    }

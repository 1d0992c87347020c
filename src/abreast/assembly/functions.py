"""Finds functions by name, and tells by its text whether a function has changed."""

from __future__ import annotations

import ast
import dis
import importlib
import inspect
import linecache
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

_TEXT_LIKE: Final = (str, bytes, int, float, complex, bool, type(None))


# --- by name --------------------------------------------------------------------------------------


def find_function_in(call: str, directory: str) -> Callable[..., Any]:
    """The function `pkg.mod:function`; its module is imported as a script in `directory` would.

    Raises ValueError if the module or the function does not exist.
    """
    module_name, mark, path = call.partition(":")
    if not mark or not all(
        part.isidentifier() for part in (*module_name.split("."), *path.split("."))
    ):
        raise ValueError(f"{call!r} is no function; write it as pkg.mod:function")
    if directory not in sys.path:
        sys.path.insert(0, directory)
        inherited = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = (
            os.pathsep.join((directory, inherited)) if inherited else directory
        )  # for worker processes
    found: Any = _module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{module_name} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{call} is not a function, but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(
                f"there is no module {error.name!r} here or on the PYTHONPATH"
            ) from None
        raise ValueError(f"{name} can't be imported: {error}") from error
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"{name} can't be imported ({why}); -v shows where") from error


# --- by text --------------------------------------------------------------------------------------


def module_text(function: Callable[..., Any]) -> str:
    """The text of a function's module; if it has none, that of the function."""
    try:
        return inspect.getsource(inspect.getmodule(function) or function)
    except (OSError, TypeError):
        return function_text(function)


def function_text(function: Callable[..., Any]) -> str:
    """The text that decides what a function does, as far as it can be read without running it.

    That is its own source; the functions and classes of the same module that it names, and theirs;
    the texts, numbers, patterns and tuples that it names, and the lists and mappings whose names
    are in capitals; its defaults. What imported modules do is not in it, nor a value that it
    changes itself.
    """
    text = _FunctionText(getattr(function, "__module__", None))
    text.add(function)
    return "\n".join(text.parts)


class _FunctionText:
    """Collects the text of a function and of what it names in its module."""

    def __init__(self, module: str | None) -> None:
        self.parts: list[str] = []
        self._module = module
        self._seen: set[int] = set()

    def add(self, one: Any) -> None:  # noqa: ANN401 - any callable
        if id(one) in self._seen:
            return
        self._seen.add(id(one))
        if isinstance(one, partial):
            self._add_values({"args": one.args, **one.keywords})
            self.add(one.func)
        elif isinstance(one, MethodType):
            self._add_values(getattr(one.__self__, "__dict__", {}), held=True)
            self.add(one.__func__)
        elif isinstance(one, FunctionType):
            self._add_function(one)
        elif isinstance(one, type):
            self._add_class(one)
        else:  # an object that can be called, a built-in function
            self.parts.append(getattr(one, "__qualname__", ""))
            self._add_values(getattr(one, "__dict__", {}), held=True)
            self.add(type(one))

    def _add_function(self, function: FunctionType) -> None:
        self.parts.append(_source(function.__code__))
        self._add_values({"defaults": function.__defaults__, **(function.__kwdefaults__ or {})})
        for name, value in _named_values(function):
            if isinstance(value, (FunctionType, MethodType, partial, type)):
                if getattr(value, "__module__", self._module) == self._module:
                    self.add(value)
            elif (text := _constant(value, lists=name.isupper())) is not None:
                self.parts.append(f"{name} = {text}")

    def _add_class(self, kind: type) -> None:
        self.parts.append(kind.__qualname__)
        for name, one in inspect.get_annotations(kind).items():
            self.parts.append(f"{name}: {getattr(one, '__name__', one)}")
        held = {name: one for name, one in vars(kind).items() if not name.startswith("__")}
        self._add_values(held)
        for value in vars(kind).values():
            if isinstance(value, FunctionType):
                self.add(value)

    def _add_values(self, values: Mapping[str, object], *, held: bool = False) -> None:
        """Add those that are plain values; `held` ones are of an object, which may change them."""
        texts = {
            name: _constant(value, lists=not held or name.isupper())
            for name, value in values.items()
        }
        self.parts += [f"{name} = {text}" for name, text in texts.items() if text is not None]


def _named_values(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The values that a function reads by name and does not assign, sorted by name."""
    read, assigned = set[str](), set[str]()
    for code in _codes(function.__code__):
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read.add(str(step.argval))
            elif step.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                assigned.add(str(step.argval))
    names = function.__globals__
    found = {name: names[name] for name in read if name in names}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return ((name, found[name]) for name in sorted(found) if name not in assigned)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constant(value: object, *, lists: bool = True) -> str | None:
    """The text of a plain value; None for any other, and for lists and mappings unless `lists`."""
    if isinstance(value, _TEXT_LIKE):
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"{value.pattern!r} {value.flags}"
    if isinstance(value, (tuple, frozenset)) or (lists and isinstance(value, (list, set))):
        found = [_constant(one) for one in value]
        ordered = sorted(map(str, found)) if isinstance(value, (set, frozenset)) else found
        return None if None in found else f"{type(value).__name__}({', '.join(map(str, ordered))})"
    if lists and isinstance(value, Mapping):
        pairs = [(_constant(name), _constant(one)) for name, one in value.items()]
        return None if any(None in pair for pair in pairs) else repr(pairs)
    return None


def _source(code: CodeType) -> str:
    """The source of a function; its bytecode if there is none, as in `exec`."""
    try:
        if code.co_name == "<lambda>":
            return _lambda_source(code)
        return textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError, SyntaxError, LookupError):
        return _bytecode(code)


def _lambda_source(code: CodeType) -> str:
    """The source of a lambda alone; LookupError if it can't be told from others on its line."""
    text = "".join(linecache.getlines(code.co_filename))
    found = {
        ast.get_source_segment(text, node): None
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and _is_within(code, node)
    }
    (segment,) = [one for one in found if one] if len(found) == 1 else [None]
    if segment is None:
        raise LookupError(code.co_firstlineno)
    return segment


def _is_within(code: CodeType, node: ast.Lambda) -> bool:
    """Whether the instructions of a code are those of this lambda's body."""
    spans = {
        (line, column, end_line, end_column)
        for line, end_line, column, end_column in code.co_positions()
        if line and end_line and column is not None and end_column
    }
    body = node.body
    return (body.lineno, body.col_offset, body.end_lineno, body.end_col_offset) in spans


def _bytecode(code: CodeType) -> str:
    constants = [
        _bytecode(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, constants))

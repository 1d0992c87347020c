"""Builds values from descriptions: the arguments of generated calls."""

import datetime as dt
import decimal
import enum
import fractions
import functools
import importlib
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, cast


class Unbuildable(Exception):
    """A value can't be built; the message says why."""


def build(plain: Any) -> object:  # noqa: ANN401 - JSON, of a form that is checked as it is read
    """Build the value that `[kind, text, parts]` describes. Raises `Unbuildable`."""
    try:
        kind, text, parts = plain
        return _BUILDERS[kind](text, [build(one) for one in parts])
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise Unbuildable(f"{type(error).__name__}: {error}") from None


def _as_dict(parts: list[object]) -> dict[object, object]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _find_class(label: str) -> Any:  # noqa: ANN401 - any class
    """Import a class by its dotted name."""
    parts = label.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        return functools.reduce(getattr, parts[cut:], module)
    raise Unbuildable(f"there is no {label}")


def _instance(label: str, parts: list[object]) -> object:
    """Build an instance with that state, without calling its `__init__`."""
    made = object.__new__(_find_class(label))
    for name, value in _as_dict(parts).items():
        object.__setattr__(made, cast("str", name), value)
    return made


def _member(text: str, _: list[object]) -> object:
    label, name = text.split("|", 1)
    return cast("type[enum.Enum]", _find_class(label))[name]


def _text(text: str, _: list[object]) -> object:
    label, content = text.split("|", 1)
    return _FROM_TEXT[label](content)


_FROM_TEXT: dict[str, Callable[[str], object]] = {
    "decimal.Decimal": decimal.Decimal,
    "pathlib.PurePosixPath": pathlib.PurePosixPath,
    "pathlib.PosixPath": pathlib.PosixPath,
}
_CONSTRUCTORS: dict[str, Callable[..., object]] = {
    "fractions.Fraction": fractions.Fraction,
    "datetime.date": dt.date,
    "datetime.datetime": dt.datetime,
    "datetime.timedelta": dt.timedelta,
    "range": range,
}
_FACTORIES: dict[str, type] = {
    "list": list,
    "int": int,
    "dict": dict,
    "set": set,
    "str": str,
    "float": float,
}
_BUILDERS: dict[str, Callable[[str, list[Any]], object]] = {
    "none": lambda _, __: None,
    "bool": lambda text, _: text == "True",
    "int": lambda text, _: int(text, 16),
    "float": lambda text, _: float.fromhex(text),
    "str": lambda text, _: text,
    "bytes": lambda text, _: text.encode("latin-1"),
    "bytearray": lambda text, _: bytearray(text.encode("latin-1")),
    "complex": lambda _, parts: complex(*parts),
    "list": lambda _, parts: parts,
    "tuple": lambda _, parts: tuple(parts),
    "subtuple": lambda label, parts: tuple.__new__(_find_class(label), parts),
    "set": lambda _, parts: set(parts),
    "frozenset": lambda _, parts: frozenset(parts),
    "deque": lambda _, parts: deque(parts),
    "dict": lambda _, parts: _as_dict(parts),
    "Counter": lambda _, parts: Counter(_as_dict(parts)),
    "OrderedDict": lambda _, parts: OrderedDict(_as_dict(parts)),
    "defaultdict": lambda factory, parts: defaultdict(
        _FACTORIES[factory] if factory else None, _as_dict(parts)
    ),
    "instance": _instance,
    "enum": _member,
    "text": _text,
    "call": lambda label, parts: _CONSTRUCTORS[label](*parts),
}

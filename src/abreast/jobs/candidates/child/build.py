"""Makes values of their description: the arguments of calls that nobody has made yet."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import importlib
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, cast


class Unbuildable(Exception):
    """This can't be made; the message says what."""


def build(plain: Any) -> object:  # noqa: ANN401 - JSON, of a form that is checked as it is read
    """The value that a description `[kind, text, parts]` stands for. Raises Unbuildable."""
    try:
        kind, text, parts = plain
        return _KINDS[kind](text, [build(one) for one in parts])
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise Unbuildable(f"{type(error).__name__}: {error}") from None


def _pairs(parts: list[object]) -> dict[object, object]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _find(label: str) -> Any:  # noqa: ANN401
    """A class by its name, in whichever module it is."""
    parts = label.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise Unbuildable(f"there is no {label}")


def _instance(label: str, parts: list[object]) -> object:
    """An instance with that state; its `__init__` is not asked."""
    made = object.__new__(_find(label))
    for name, value in _pairs(parts).items():
        object.__setattr__(made, cast("str", name), value)
    return made


def _member(text: str, _: list[object]) -> object:
    label, name = text.split("|", 1)
    return cast("type[enum.Enum]", _find(label))[name]


def _text(text: str, _: list[object]) -> object:
    label, said = text.split("|", 1)
    return _TEXTS[label](said)


_TEXTS: dict[str, Callable[[str], object]] = {
    "decimal.Decimal": decimal.Decimal,
    "pathlib.PurePosixPath": pathlib.PurePosixPath,
    "pathlib.PosixPath": pathlib.PosixPath,
}
_CALLED: dict[str, Callable[..., object]] = {
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
_KINDS: dict[str, Callable[[str, list[Any]], object]] = {
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
    "subtuple": lambda label, parts: tuple.__new__(_find(label), parts),
    "set": lambda _, parts: set(parts),
    "frozenset": lambda _, parts: frozenset(parts),
    "deque": lambda _, parts: deque(parts),
    "dict": lambda _, parts: _pairs(parts),
    "Counter": lambda _, parts: Counter(_pairs(parts)),
    "OrderedDict": lambda _, parts: OrderedDict(_pairs(parts)),
    "defaultdict": lambda factory, parts: defaultdict(
        _FACTORIES[factory] if factory else None, _pairs(parts)
    ),
    "instance": _instance,
    "enum": _member,
    "text": _text,
    "call": lambda label, parts: _CALLED[label](*parts),
}

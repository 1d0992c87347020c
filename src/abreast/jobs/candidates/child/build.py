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
    """The value that a description `[kind, ...]` stands for. Raises Unbuildable."""
    try:
        kind, *rest = plain
        return _KINDS[kind](*rest)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise Unbuildable(f"{type(error).__name__}: {error}") from None


def _pairs(pairs: list[tuple[object, object]]) -> dict[object, object]:
    return {build(key): build(value) for key, value in pairs}


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


def _instance(label: str, state: list[tuple[str, object]]) -> object:
    """An instance with that state; its `__init__` is not asked."""
    cls = _find(label)
    made = object.__new__(cls)
    for name, value in state:
        object.__setattr__(made, name, build(value))
    return made


def _member(label: str, name: str) -> object:
    return cast("type[enum.Enum]", _find(label))[name]


def _text(label: str, text: str) -> object:
    return _TEXTS[label](text)


_TEXTS: dict[str, Callable[[str], object]] = {
    "decimal.Decimal": decimal.Decimal,
    "fractions.Fraction": fractions.Fraction,
    "datetime.date": dt.date.fromisoformat,
    "datetime.datetime": dt.datetime.fromisoformat,
    "datetime.time": dt.time.fromisoformat,
    "datetime.timedelta": lambda text: dt.timedelta(*map(int, text.split())),
    "pathlib.PurePosixPath": pathlib.PurePosixPath,
}
_KINDS: dict[str, Callable[..., object]] = {
    "none": lambda: None,
    "bool": bool,
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "str": lambda text: text,
    "bytes": lambda text: text.encode("latin-1"),
    "bytearray": lambda text: bytearray(text.encode("latin-1")),
    "complex": complex,
    "list": lambda items: [build(one) for one in items],
    "tuple": lambda items: tuple(build(one) for one in items),
    "set": lambda items: {build(one) for one in items},
    "frozenset": lambda items: frozenset(build(one) for one in items),
    "deque": lambda items: deque(build(one) for one in items),
    "dict": _pairs,
    "Counter": lambda pairs: Counter(_pairs(pairs)),
    "OrderedDict": lambda pairs: OrderedDict(_pairs(pairs)),
    "defaultdict": lambda pairs, factory: defaultdict(_FACTORIES[factory], _pairs(pairs)),
    "instance": _instance,
    "enum": _member,
    "text": _text,
}
_FACTORIES: dict[str, type] = {"list": list, "int": int, "dict": dict, "set": set, "str": str, "float": float}

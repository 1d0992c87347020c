"""Descriptions of values that can be changed and built again, for generated inputs."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from abreast.jobs.candidates.values.snapshot import ValueSnapshot

_MAX_PARTS: Final = 3_000  # of a value that is described
_MAX_INT_DIGITS: Final = 200  # hexadecimal digits of an int that is shown whole
_SEQUENCES: Final = {"list": "list", "tuple": "tuple", "collections.deque": "deque"}
_MAPS: Final = {
    "dict": "dict",
    "collections.Counter": "Counter",
    "collections.OrderedDict": "OrderedDict",
    "collections.defaultdict": "defaultdict",
}
# Types that are built by a call, with the number of its arguments.
_CALL_ARGUMENTS: Final = {
    "fractions.Fraction": 2,
    "datetime.date": 3,
    "datetime.datetime": 7,
    "datetime.timedelta": 3,
    "range": 3,
}
_TEXT_TYPES: Final = {
    ("bytes", "bytearray"),
    *((name, name) for name in ("bool", "int", "float", "str", "bytes")),
}
_BUILT_FROM_TEXT: Final = ("decimal.Decimal", "pathlib.PurePosixPath", "pathlib.PosixPath")


class NotPlain(Exception):
    """The value has a part that can't be built again from a description."""


@dataclass(frozen=True, slots=True)
class Plain:
    """One value: its kind, its text, and its parts; of a map, each key before its value."""

    kind: str
    text: str = ""
    items: tuple[Plain, ...] = ()

    def to_json(self) -> list[Any]:
        """Return it in the form that the child process reads."""
        return [self.kind, self.text, [one.to_json() for one in self.items]]

    @property
    def size(self) -> int:
        """The size of the value with all parts, which shrinking reduces."""
        return 1 + _own_size(self) + sum(one.size for one in self.items)

    def walk(self, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Plain]]:
        """Yield every part with its path."""
        yield path, self
        for at, one in enumerate(self.items):
            yield from one.walk((*path, at))

    def put(self, path: tuple[int, ...], part: Plain) -> Plain:
        """Return a copy with another part at that path."""
        if not path:
            return part
        items = list(self.items)
        items[path[0]] = items[path[0]].put(path[1:], part)
        return replace(self, items=tuple(items))

    def order(self) -> tuple[Any, ...]:
        """Return a key to sort by; its second element is the value of a number."""
        if self.kind == "int":
            return ("number", int(self.text, 16))
        if self.kind == "float":
            number = float.fromhex(self.text)
            return ("number", number if not math.isnan(number) else math.inf)
        return (self.kind, self.text, *(one.order() for one in self.items))

    def __str__(self) -> str:
        return _SHOW.get(self.kind, _show_other)(self)


def _own_size(value: Plain) -> int:
    """Return the size without parts: 0 and 1 are smaller than other numbers, "a" than letters."""
    if value.kind == "int":
        return int(value.text, 16).bit_length()
    if value.kind == "float":
        number = float.fromhex(value.text)
        return int(number) if number in {0.0, 1.0} else 2 + len(value.text) // 2
    is_text = value.kind in {"str", "bytes", "bytearray"}
    return 2 * len(value.text) - value.text.count("a") if is_text else 0


def from_snapshot(snapshot: ValueSnapshot, index: int = 0) -> Plain:
    """Return the description of a value from its snapshot. Raises NotPlain."""
    if len(snapshot.nodes) > _MAX_PARTS:
        raise NotPlain("it is too large")
    return _Reader(snapshot).read(index)


class _Reader:
    def __init__(self, snapshot: ValueSnapshot) -> None:
        self._nodes = snapshot.nodes
        self._open: set[int] = set()

    def read(self, at: int) -> Plain:
        if at in self._open:
            raise NotPlain("it contains itself")
        self._open.add(at)
        try:
            return self._read(at)
        finally:
            self._open.discard(at)

    def _read(self, at: int) -> Plain:
        node = self._nodes[at]
        if node.kind == "none":
            return Plain("none")
        text = Plain(node.type, node.value or "") if (node.kind, node.type) in _TEXT_TYPES else None
        return text or self._container(at) or self._other(at)

    def _container(self, at: int) -> Plain | None:
        node = self._nodes[at]
        if node.kind == "items" and (node.type in _SEQUENCES or not node.names):
            kind = _SEQUENCES.get(node.type, "subtuple")
            return Plain(
                kind, node.type if kind == "subtuple" else "", tuple(map(self.read, node.items))
            )
        if node.kind in {"set", "complex"} and node.type in {"set", "frozenset", "complex"}:
            return Plain(node.type, "", tuple(map(self.read, node.items)))
        if node.kind != "map" or node.type not in _MAPS:
            return None
        return Plain(_MAPS[node.type], self._factory(at), tuple(map(self.read, node.items)))

    def _factory(self, at: int) -> str:
        node = self._nodes[at]
        for name, place in zip(node.names, node.attributes, strict=True):
            if name != "default_factory" or self._nodes[place].kind != "class":
                raise NotPlain("a map with a state of its own")
            return (self._nodes[place].value or "").removeprefix("builtins.")
        return ""

    def _other(self, at: int) -> Plain:
        node = self._nodes[at]
        if node.type in _BUILT_FROM_TEXT or node.kind == "enum":
            kind = "text" if node.type in _BUILT_FROM_TEXT else "enum"
            return Plain(kind, f"{node.type}|{node.value}")
        parts = tuple(map(self.read, node.attributes[: _CALL_ARGUMENTS.get(node.type)]))
        if node.type in _CALL_ARGUMENTS:
            return Plain("call", node.type, parts)
        if (
            node.kind != "object"
            or "." not in node.type
            or node.items
            or node.value is not None
            or not all(name.isidentifier() for name in node.names)
        ):
            raise NotPlain(f"a {node.type} can't be made again")
        names = (Plain("str", name) for name in node.names)
        return Plain("instance", node.type, tuple(chain(*zip(names, parts, strict=True))))


# --- as Python code


def _show_items(value: Plain) -> str:
    return ", ".join(map(str, value.items))


def _show_pairs(value: Plain, form: str) -> str:
    return ", ".join(
        form.format(key, one) for key, one in zip(value.items[::2], value.items[1::2], strict=True)
    )


def _show_other(value: Plain) -> str:
    if value.kind == "instance":
        return f"{value.text.rpartition('.')[2]}({_show_pairs(value, '{.text}={}')})"
    if value.kind in {"text", "enum"}:
        label, _, content = value.text.partition("|")
        name = label.rpartition(".")[2]
        shown = str(decimal.Decimal(content)) if label == "decimal.Decimal" else content
        return f"{name}.{content}" if value.kind == "enum" else f"{name}({shown!r})"
    if value.kind in {"Counter", "OrderedDict", "defaultdict"}:
        factory = f"{value.text}, " if value.text else ""
        return f"{value.kind}({factory}{{{_show_pairs(value, '{}: {}')}}})"
    return f"{value.text.rpartition('.')[2] or value.kind}({_show_items(value)})"


_SHOW: Final[dict[str, Callable[[Plain], str]]] = {
    "none": lambda _: "None",
    "bool": lambda value: value.text,
    "int": lambda value: (
        str(int(value.text, 16)) if len(value.text) < _MAX_INT_DIGITS else f"0x{value.text[:20]}…"
    ),
    "float": lambda value: str(float.fromhex(value.text)),
    "str": lambda value: repr(value.text),
    "bytes": lambda value: repr(value.text.encode("latin-1")),
    "list": lambda value: f"[{_show_items(value)}]",
    "tuple": lambda value: f"({_show_items(value)}{',' if len(value.items) == 1 else ''})",
    "set": lambda value: f"{{{_show_items(value)}}}" if value.items else "set()",
    "dict": lambda value: f"{{{_show_pairs(value, '{}: {}')}}}",
}


_FROM_VALUE: Final[dict[type, Callable[[Any], Plain]]] = {
    type(None): lambda _: Plain("none"),
    bool: lambda value: Plain("bool", str(value)),
    int: lambda value: Plain("int", f"{value:x}"),
    float: lambda value: Plain("float", value.hex()),
    str: lambda value: Plain("str", value),
    list: lambda value: Plain("list", "", tuple(map(from_value, value))),
    tuple: lambda value: Plain("tuple", "", tuple(map(from_value, value))),
    dict: lambda value: Plain(
        "dict", "", tuple(from_value(part) for pair in value.items() for part in pair)
    ),
}


def from_value(value: object) -> Plain:
    """Return the description of a plain value. Raises NotPlain."""
    if type(value) not in _FROM_VALUE:
        raise NotPlain(f"a {type(value).__name__}")
    return _FROM_VALUE[type(value)](value)

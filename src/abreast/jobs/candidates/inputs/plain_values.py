"""Values as plain descriptions that can be changed and made again: the stuff that generated inputs are made of."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from abreast.jobs.candidates.values.snapshot import ValueSnapshot

_LARGEST: Final = 3_000  # parts of a value that is worth changing
_SEQUENCES: Final = {"list": "list", "tuple": "tuple", "collections.deque": "deque"}
_MAPS: Final = {
    "dict": "dict",
    "collections.Counter": "Counter",
    "collections.OrderedDict": "OrderedDict",
    "collections.defaultdict": "defaultdict",
}
_CALLED: Final = {
    "fractions.Fraction": 2,
    "datetime.date": 3,
    "datetime.datetime": 7,
    "datetime.timedelta": 3,
    "range": 3,
}
_TEXTS: Final = ("decimal.Decimal", "pathlib.PurePosixPath", "pathlib.PosixPath")


class NotPlain(Exception):
    """The value has a part that can't be made again from a description."""


@dataclass(frozen=True, slots=True)
class Plain:
    """One value: its kind, what it says, and its parts; of a map, each key before its value."""

    kind: str
    text: str = ""
    items: tuple[Plain, ...] = ()

    def to_json(self) -> list[Any]:
        """As the child reads it."""
        return [self.kind, self.text, [one.to_json() for one in self.items]]

    @property
    def size(self) -> int:
        """How much there is of it: what shrinking makes less."""
        return 1 + _weight(self) + sum(one.size for one in self.items)

    def walk(self, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Plain]]:
        """Every part, with the way to it."""
        yield path, self
        for at, one in enumerate(self.items):
            yield from one.walk((*path, at))

    def put(self, path: tuple[int, ...], part: Plain) -> Plain:
        """The same with another part at that place."""
        if not path:
            return part
        items = list(self.items)
        items[path[0]] = items[path[0]].put(path[1:], part)
        return replace(self, items=tuple(items))

    def order(self) -> tuple[Any, ...]:
        """A key to sort by: numbers by their size, the second of it."""
        if self.kind == "int":
            return ("number", int(self.text, 16))
        if self.kind == "float":
            number = float.fromhex(self.text)
            return ("number", number if not math.isnan(number) else math.inf)
        return (self.kind, self.text, *(one.order() for one in self.items))

    def __str__(self) -> str:
        return _SHOWN.get(self.kind, _shown_other)(self)


def _weight(value: Plain) -> int:
    """Of one value alone: 0 and 1 weigh less than other numbers, "a" less than other letters."""
    if value.kind == "int":
        return int(value.text, 16).bit_length()
    if value.kind == "float":
        number = float.fromhex(value.text)
        return int(number) if number in {0.0, 1.0} else 2 + len(value.text) // 2
    if value.kind in {"str", "bytes", "bytearray"}:
        return 2 * len(value.text) - value.text.count("a")
    return 0


def described(portrait: ValueSnapshot, index: int = 0) -> Plain:
    """The description of what was portrayed. Raises NotPlain."""
    if len(portrait.nodes) > _LARGEST:
        raise NotPlain("it is too large")
    return _Reader(portrait).read(index)


class _Reader:
    def __init__(self, portrait: ValueSnapshot) -> None:
        self._nodes = portrait.nodes
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
        text = node.value or ""
        if node.kind == "none":
            return Plain("none")
        if node.kind in {"bool", "int", "float", "str"} and node.type == node.kind:
            return Plain(node.kind, text)
        if node.kind == "bytes" and node.type in {"bytes", "bytearray"}:
            return Plain(node.type, text)
        return self._held(at) or self._other(at)

    def _held(self, at: int) -> Plain | None:
        """A container; None if it is something else."""
        node = self._nodes[at]
        if node.kind == "items" and (node.type in _SEQUENCES or not node.names):
            kind = _SEQUENCES.get(node.type, "subtuple")
            return Plain(
                kind, node.type if kind == "subtuple" else "", tuple(map(self.read, node.items))
            )
        if node.kind in {"set", "complex"} and node.type in {"set", "frozenset", "complex"}:
            return Plain(node.type, "", tuple(map(self.read, node.items)))
        if node.kind == "map" and node.type in _MAPS:
            return Plain(_MAPS[node.type], self._factory(at), tuple(map(self.read, node.items)))
        return None

    def _factory(self, at: int) -> str:
        node = self._nodes[at]
        for name, place in zip(node.names, node.attributes, strict=True):
            if name != "default_factory" or self._nodes[place].kind != "class":
                raise NotPlain("a map with a state of its own")
            return (self._nodes[place].value or "").removeprefix("builtins.")
        return ""

    def _other(self, at: int) -> Plain:
        node = self._nodes[at]
        if node.type in _TEXTS:
            return Plain("text", f"{node.type}|{node.value}")
        if node.kind == "enum":
            return Plain("enum", f"{node.type}|{node.value}")
        if node.type in _CALLED:
            return Plain(
                "call",
                node.type,
                tuple(self.read(one) for one in node.attributes[: _CALLED[node.type]]),
            )
        if node.kind == "object" and "." in node.type and not node.items and node.value is None:
            state = [
                part
                for name, place in zip(node.names, node.attributes, strict=True)
                for part in (Plain("str", name), self.read(place))
            ]
            if all(name.isidentifier() for name in node.names):
                return Plain("instance", node.type, tuple(state))
        raise NotPlain(f"a {node.type} can't be made again")


# --- for people


def _inner(value: Plain) -> str:
    return ", ".join(map(str, value.items))


def _pairs(value: Plain, form: str) -> str:
    return ", ".join(
        form.format(key, one) for key, one in zip(value.items[::2], value.items[1::2], strict=True)
    )


def _shown_other(value: Plain) -> str:
    if value.kind == "instance":
        names = zip(value.items[::2], value.items[1::2], strict=True)
        return f"{value.text.rpartition('.')[2]}({', '.join(f'{key.text}={one}' for key, one in names)})"
    if value.kind in {"text", "enum"}:
        label, _, said = value.text.partition("|")
        name = label.rpartition(".")[2]
        return f"{name}.{said}" if value.kind == "enum" else f"{name}({_said(label, said)!r})"
    if value.kind in {"Counter", "OrderedDict", "defaultdict"}:
        return (
            f"{value.kind}({value.text + ', ' if value.text else ''}{{{_pairs(value, '{}: {}')}}})"
        )
    return f"{value.text.rpartition('.')[2] or value.kind}({_inner(value)})"


def _said(label: str, text: str) -> str:
    return str(decimal.Decimal(text)) if label == "decimal.Decimal" else text


_SHOWN: Final[dict[str, Callable[[Plain], str]]] = {
    "none": lambda _: "None",
    "bool": lambda value: value.text,
    "int": lambda value: (
        str(int(value.text, 16)) if len(value.text) < 200 else f"0x{value.text[:20]}…"
    ),
    "float": lambda value: str(float.fromhex(value.text)),
    "str": lambda value: repr(value.text),
    "bytes": lambda value: repr(value.text.encode("latin-1")),
    "list": lambda value: f"[{_inner(value)}]",
    "tuple": lambda value: f"({_inner(value)}{',' if len(value.items) == 1 else ''})",
    "set": lambda value: f"{{{_inner(value)}}}" if value.items else "set()",
    "dict": lambda value: f"{{{_pairs(value, '{}: {}')}}}",
}


def from_value(value: object) -> Plain:
    """The description of a plain value of ours. Raises NotPlain."""
    if value is None:
        return Plain("none")
    if isinstance(value, bool | int):
        return Plain("bool", str(value)) if isinstance(value, bool) else Plain("int", f"{value:x}")
    if isinstance(value, float):
        return Plain("float", value.hex())
    if isinstance(value, str):
        return Plain("str", value)
    if isinstance(value, list | tuple):
        return Plain(
            "list" if isinstance(value, list) else "tuple", "", tuple(map(from_value, value))
        )
    if isinstance(value, dict):
        return Plain("dict", "", tuple(from_value(part) for pair in value.items() for part in pair))
    raise NotPlain(f"a {type(value).__name__}")

"""A value as plain data: a flat graph of nodes that travels between processes and is never more than text.

Nothing in a portrait can run. That is why a judge may read one that came from a process it doesn't
trust: `unpack` reads JSON and checks every field, and whatever else it finds is a
`SnapshotInvalid`.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_FIELDS = 7
_SLICED = re.compile(r"[a-z]+(:[^ |]+)?\|[a-z]*\|[0-9]{1,15}\|[1-9][0-9]{0,9}( [0-9a-f]{32})*")
_DEEPEST = 4  # levels that a shortened value shows
_WIDEST = 6  # members of a level that it shows


class SnapshotInvalid(ValueError):
    """What came is no portrait: it was cut short, or made by hand."""


class SnapshotNode(NamedTuple):
    """One value: what it is (`kind`, `type`), what it holds, and which nodes are its parts.

    `items` are its members in order; of a `map`, each key before its value; of a `set`, in no order. `attributes` are
    its state, under `names`. `identity` says that it can change, so that it matters who shares it.
    """

    kind: str
    type: str
    value: str | None = None
    items: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    attributes: tuple[int, ...] = ()
    identity: bool = False

    @property
    def parts(self) -> tuple[int, ...]:
        """Every node that this one leads to."""
        return self.items + self.attributes


@dataclass(frozen=True, slots=True)
class ValueSnapshot:
    """A graph of nodes, its first the value itself.

    `classes` has the classes of nodes that are instances of somebody's own, for as long as the portrait stays in its
    process; they don't travel.
    """

    nodes: tuple[SnapshotNode, ...]
    classes: Mapping[int, type] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        """The value, shortened."""
        return show(self, 0)


def pack(portrait: ValueSnapshot) -> bytes:
    """A portrait as bytes, which `unpack` reads in any other process."""
    return json.dumps(portrait.nodes, separators=(",", ":")).encode("ascii")


def unpack(data: bytes) -> ValueSnapshot:
    """The portrait in `data`. Raises `SnapshotInvalid` for anything but what `pack` writes.

    Nothing in it is run.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SnapshotInvalid(f"not a portrait: {error}") from None
    return from_plain(raw)


def from_plain(raw: object) -> ValueSnapshot:
    """The portrait that was read from JSON, each field of each node checked."""
    if type(raw) is not list or not raw:
        raise SnapshotInvalid("not a portrait: no list of nodes")
    return ValueSnapshot(tuple(_node(one, len(raw)) for one in raw))


def _node(raw: object, size: int) -> SnapshotNode:
    if type(raw) is not list or len(raw) != _FIELDS:
        raise SnapshotInvalid("not a portrait: a node has seven fields")
    kind, label, value, items, names, attributes, identity = raw
    if type(kind) is not str or type(label) is not str or type(identity) is not bool:
        raise SnapshotInvalid("not a portrait: a node without kind or type")
    if value is not None and type(value) is not str:
        raise SnapshotInvalid("not a portrait: the value of a node is text")
    node = SnapshotNode(
        kind, label, value, _places(items, size), _texts(names), _places(attributes, size), identity
    )
    _check(node)
    return node


def _check(node: SnapshotNode) -> None:
    """What the comparator relies on, so that no made-up node can make it fail."""
    odd = node.kind == "map" and len(node.items) % 2
    if odd or len(node.names) != len(node.attributes) or len(set(node.names)) != len(node.names):
        raise SnapshotInvalid("not a portrait: parts without their names")
    try:
        if node.kind == "float":
            float.fromhex(node.value or "")
        elif node.kind == "int":
            int(node.value or "", 16)
        elif node.kind.startswith("block:") and len(node.value or "") % struct.calcsize(
            block_format(node)
        ):
            raise SnapshotInvalid("not a portrait: a block that ends in the middle of a number")
        elif node.kind.startswith("block:"):
            block_bytes(node)
        elif node.kind == "sliced" and not _is_sliced(node.value or ""):
            raise SnapshotInvalid("not a portrait: slices without their digests")
    except (ValueError, OverflowError, struct.error, ZeroDivisionError) as error:
        raise SnapshotInvalid(f"not a portrait: {error}") from None


def _is_sliced(value: str) -> bool:
    """Whether it says what is sliced, how long it is, how long a slice is, and has the digest of each."""
    if not _SLICED.fullmatch(value):
        return False
    head, *digests = value.split(" ")
    count, step = map(int, head.split("|")[2:])
    return len(digests) == -(-count // step)


def _places(raw: object, size: int) -> tuple[int, ...]:
    if type(raw) is not list or not all(type(one) is int and 0 <= one < size for one in raw):
        raise SnapshotInvalid("not a portrait: a part that isn't there")
    return tuple(raw)


def _texts(raw: object) -> tuple[str, ...]:
    if type(raw) is not list or not all(type(one) is str for one in raw):
        raise SnapshotInvalid("not a portrait: a name that is no text")
    return tuple(raw)


# --- blocks: many numbers in one node


def block_format(node: SnapshotNode) -> str:
    """How `struct` reads one element of a block."""
    return node.kind.removeprefix("block:")


def block_bytes(node: SnapshotNode) -> bytes:
    """The bytes of a block."""
    return (node.value or "").encode("latin-1")


# --- shortened, for people


def show(portrait: ValueSnapshot, index: int, limit: int = 100) -> str:
    """The value at a node as a person would write it, shortened to `limit` characters."""
    text = _shown(portrait.nodes, index, _DEEPEST)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _shown(nodes: Sequence[SnapshotNode], index: int, levels: int) -> str:
    node = nodes[index]
    if node.kind in _PLAIN:
        return _PLAIN[node.kind](node)
    if node.kind.startswith("block:"):
        return f"{node.type}({_block(node)})"
    if levels == 0:
        return "…"
    items = [_shown(nodes, one, levels - 1) for one in node.items[: 2 * _WIDEST]]
    if node.kind == "map":
        items = [f"{key}: {value}" for key, value in zip(items[::2], items[1::2], strict=True)]
        more = len(node.items) // 2 > _WIDEST
    else:
        more = len(node.items) > _WIDEST
    inner = ", ".join(items[:_WIDEST]) + (", …" if more else "")
    opened, closed = _BRACKETS.get(node.type, ("", ""))
    if opened and not node.names:
        return f"{opened}{inner}{closed}"
    state = [
        f"{name}={_shown(nodes, one, levels - 1)}"
        for name, one in list(zip(node.names, node.attributes, strict=True))[:_WIDEST]
    ]
    held = [] if node.value is None or node.kind == "map" else [repr(node.value[:_LONGEST])]
    return f"{node.type}({', '.join([*held, *([inner] if inner else []), *state])})"


_LONGEST = 200  # characters of one text that are looked at at all
_BRACKETS = {"list": ("[", "]"), "tuple": ("(", ")"), "dict": ("{", "}"), "set": ("{", "}")}


def _block(node: SnapshotNode) -> str:
    form = block_format(node)
    size = struct.calcsize(form)
    data = block_bytes(node)
    first = [
        one[0] if len(one) == 1 else one for one in struct.iter_unpack(form, data[: size * _WIDEST])
    ]
    return ", ".join(map(repr, first)) + (", …" if len(data) > size * _WIDEST else "")


def _int(node: SnapshotNode) -> str:
    text = node.value or ""
    return str(int(text, 16)) if len(text) < _LONGEST else f"{text[:_LONGEST]}"


_PLAIN: dict[str, Callable[[SnapshotNode], str]] = {
    "none": lambda _: "None",
    "atom": lambda node: f"{node.type}({node.value})" if node.value else node.type,
    "bool": lambda node: str(node.value),
    "int": lambda node: _int(node) if node.type == "int" else f"{node.type}({_int(node)})",
    "float": lambda node: _own(node, str(float.fromhex(node.value or "nan"))),
    "str": lambda node: _own(node, repr((node.value or "")[:_LONGEST])),
    "bytes": lambda node: _own(
        node, repr((node.value or "")[:_LONGEST].encode("latin-1", "replace"))
    ),
    "unknown": lambda node: f"<{node.type}>",
    "sliced": lambda node: f"<{node.type} of {(node.value or '||').split('|')[2]}>",
    "rest": lambda _: "…",
    "whole": lambda _: "…",
}


def _own(node: SnapshotNode, text: str) -> str:
    return text if node.type == node.kind else f"{node.type}({text})"

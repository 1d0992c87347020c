"""Snapshots: values as plain data, a flat graph of text nodes that is sent between processes.

Nothing in a snapshot can run. That is why the judging process may read one from a process that it
doesn't trust: `from_plain` checks every field of what JSON has, and raises `SnapshotInvalid` for
anything else.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_NODE_FIELDS = 7
_SLICED_VALUE = re.compile(
    r"[a-z]+(:[^ |]+)?\|[a-z]*\|(?P<count>[0-9]{1,15})\|(?P<step>[1-9][0-9]{0,9})( [0-9a-f]{32})*"
)
_SHOWN_LEVELS = 4  # nesting levels that a shortened value shows
_SHOWN_MEMBERS = 6  # members of each level that it shows


class SnapshotInvalid(ValueError):
    """The data is not a snapshot: it is not what `pack` writes."""


RAISED: Final = "<raised>"  # under this name an iterator has the exception that it ended with


class SnapshotNode(NamedTuple):
    """One value: what it is (`kind`, `type`), its text (`value`), and the indexes of its parts.

    `items` are its members in order; of a `map`, each key before its value; of a `set`, in no
    order. `attributes` are its state, under `names`. `identity` says that the value is mutable, so
    that it matters which other values share it.
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
        """The indexes of all nodes that this one refers to."""
        return self.items + self.attributes


@dataclass(frozen=True, slots=True)
class ValueSnapshot:
    """A graph of nodes; the first node is the value itself.

    `classes` maps nodes to the user-defined classes of which they are instances. It exists only in
    the process that took the snapshot: `pack` leaves it out.
    """

    nodes: tuple[SnapshotNode, ...]
    classes: Mapping[int, type] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return show(self, 0)


def pack(snapshot: ValueSnapshot) -> bytes:
    """Return a snapshot as JSON; `from_plain` reads what JSON has of it in any process."""
    return json.dumps(snapshot.nodes, separators=(",", ":")).encode("ascii")


def from_plain(raw: object) -> ValueSnapshot:
    """Return the snapshot that was read from JSON, after checking each field of each node.

    Raises `SnapshotInvalid` for anything but what `pack` writes. Nothing in it is run.
    """
    if type(raw) is not list or not raw:
        raise SnapshotInvalid("not a snapshot: no list of nodes")
    return ValueSnapshot(tuple(_node(one, len(raw)) for one in raw))


def _node(raw: object, size: int) -> SnapshotNode:
    if type(raw) is not list or len(raw) != _NODE_FIELDS:
        raise SnapshotInvalid("not a snapshot: a node has seven fields")
    kind, label, value, items, names, attributes, identity = raw
    if not (type(kind) is str and type(label) is str and type(identity) is bool):
        raise SnapshotInvalid("not a snapshot: a node without kind or type")
    if not (value is None or type(value) is str):
        raise SnapshotInvalid("not a snapshot: the value of a node is text")
    if not (_are_parts(items, size) and _are_parts(attributes, size)):
        raise SnapshotInvalid("not a snapshot: a part that isn't there")
    if type(names) is not list or not all(type(one) is str for one in names):
        raise SnapshotInvalid("not a snapshot: a name that is no text")
    node = SnapshotNode(kind, label, value, tuple(items), tuple(names), tuple(attributes), identity)
    try:
        _check(node)
    except (ValueError, OverflowError, struct.error, ZeroDivisionError) as error:
        raise SnapshotInvalid(f"not a snapshot: {error}") from None
    return node


def _are_parts(raw: object, size: int) -> bool:
    return type(raw) is list and all(type(one) is int and 0 <= one < size for one in raw)


def _require(wrong: str, fits: bool) -> None:  # noqa: FBT001 - what is wrong, unless it fits
    if not fits:
        raise SnapshotInvalid(f"not a snapshot: {wrong}")


def _check(node: SnapshotNode) -> None:
    """Check what the comparison relies on, so that no forged node can make it fail."""
    kind, value = node.kind, node.value or ""
    _require(
        "parts without their names",
        not (kind == "map" and len(node.items) % 2)
        and len({*node.names}) == len(node.names) == len(node.attributes),
    )
    if kind == "float":
        float.fromhex(value)
    elif kind == "int":
        int(value, 16)
    elif kind.startswith("block:"):
        _require(
            "a block that ends in the middle of a number",
            len(value) % struct.calcsize(block_format(node)) == 0,
        )
        block_bytes(node)
    elif kind == "sliced":
        _require("slices without their digests", _is_sliced(value))


def _is_sliced(value: str) -> bool:
    """Whether a value has the form of `Slices.digested`, with one digest for each slice."""
    found = _SLICED_VALUE.fullmatch(value)
    return found is not None and value.count(" ") == -(-int(found["count"]) // int(found["step"]))


# --- blocks: many numbers in one node


def block_format(node: SnapshotNode) -> str:
    """Return the `struct` format of one element of a block."""
    return node.kind.removeprefix("block:")


def block_bytes(node: SnapshotNode) -> bytes:
    """Return the bytes of a block."""
    return (node.value or "").encode("latin-1")


# --- shortened text


def show(snapshot: ValueSnapshot, index: int, limit: int = 100) -> str:
    """Return the value at a node as a Python literal, shortened to `limit` characters."""
    text = _shorten(snapshot.nodes, index, _SHOWN_LEVELS)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _shorten(nodes: Sequence[SnapshotNode], index: int, levels: int) -> str:
    node = nodes[index]
    if node.kind in _SHOW_ATOM:
        return _SHOW_ATOM[node.kind](node)
    if node.kind.startswith("block:"):
        return f"{node.type}({_show_block(node)})"
    if levels == 0:
        return "…"
    items = [_shorten(nodes, one, levels - 1) for one in node.items[: 2 * _SHOWN_MEMBERS]]
    if node.kind == "map":
        items = [f"{key}: {value}" for key, value in zip(items[::2], items[1::2], strict=True)]
    more = len(node.items) // (2 if node.kind == "map" else 1) > _SHOWN_MEMBERS
    inner = ", ".join(items[:_SHOWN_MEMBERS]) + (", …" if more else "")
    opened, closed = _BRACKETS.get(node.type, ("", ""))
    if opened and not node.names:
        return f"{opened}{inner}{closed}"
    state = [
        f"{name}={_shorten(nodes, one, levels - 1)}"
        for name, one in list(zip(node.names, node.attributes, strict=True))[:_SHOWN_MEMBERS]
    ]
    held = (
        [] if node.value is None or node.kind == "map" else [repr(node.value[:_SHOWN_CHARACTERS])]
    )
    return f"{node.type}({', '.join([*held, *([inner] if inner else []), *state])})"


_SHOWN_CHARACTERS = 200  # characters of one text that are read for the shortened value
_BRACKETS = {"list": ("[", "]"), "tuple": ("(", ")"), "dict": ("{", "}"), "set": ("{", "}")}


def _show_block(node: SnapshotNode) -> str:
    form, data = block_format(node), block_bytes(node)
    shown = struct.calcsize(form) * _SHOWN_MEMBERS
    first = [one[0] if len(one) == 1 else one for one in struct.iter_unpack(form, data[:shown])]
    return ", ".join(map(repr, first)) + (", …" if len(data) > shown else "")


def _show_int(text: str) -> str:
    return str(int(text, 16)) if len(text) < _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS]


_SHOW_ATOM: dict[str, Callable[[SnapshotNode], str]] = {
    "none": lambda _: "None",
    "atom": lambda node: f"{node.type}({node.value})" if node.value else node.type,
    "bool": lambda node: str(node.value),
    "int": lambda node: _with_type(node, _show_int(node.value or "")),
    "float": lambda node: _with_type(node, str(float.fromhex(node.value or "nan"))),
    "str": lambda node: _with_type(node, repr((node.value or "")[:_SHOWN_CHARACTERS])),
    "bytes": lambda node: _with_type(
        node, repr((node.value or "")[:_SHOWN_CHARACTERS].encode("latin-1", "replace"))
    ),
    "unknown": lambda node: f"<{node.type}>",
    "sliced": lambda node: f"<{node.type} of {(node.value or '||').split('|')[2]}>",
    "rest": lambda _: "…",
    "whole": lambda _: "…",
}


def _with_type(node: SnapshotNode, text: str) -> str:
    return text if node.type == node.kind else f"{node.type}({text})"

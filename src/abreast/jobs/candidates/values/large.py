"""Values that are too large to be recorded: long rows, texts and blocks of numbers as digests of their slices.

A slice is the same if its digest is: the digest is over a form in which all counts that counts
under the strict rules: the type of each member (1, 1.0 and True differ), the sign of a zero, the
order of a list or dict; NaN is NaN. Members of a set are sorted, as their order says nothing. What
differs is read again, slice by slice (`WantedSlices`), and compared by the ordinary rules: by its
digest alone nothing is wrong.

Only rows of plain values are sliced. Nothing in them can be shared or changed, so that slices stand
for themselves.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from abreast.jobs.candidates.values.object_layout import Sketch
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot, block_format
from abreast.jobs.candidates.values.stdlib_types import QUICK

LONGEST_ROW: Final = 20_000
"""Members of a row that is not sliced."""
LONGEST_TEXT: Final = 200_000
"""Characters or bytes of a text or block that is not sliced."""
ROW_SLICE: Final = 1_000
TEXT_SLICE: Final = 50_000
_ROWS: Final = frozenset({"items", "set", "map"})
_TEXTS: Final = frozenset({"str", "surrogates", "bytes"})

Place = tuple[int, int]
"""A slice: the number of the node, and of the slice in it."""


@dataclass(slots=True)
class WantedSlices:
    """Slices whose content is wanted of one portrait, and what was found of them."""

    places: frozenset[Place] = frozenset()
    found: dict[Place, ValueSnapshot] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of one value: of a row its members, of a text its characters."""

    kind: str
    mark: str
    row: Sequence[object] | str
    step: int

    @property
    def count(self) -> int:
        """How many there are."""
        return -(-len(self.row) // self.step)

    def digested(self) -> str:
        """The value of a node that stands for it: what it is, how long, how long a slice, and the digest of each."""
        head = f"{self.kind}|{self.mark}|{len(self.row)}|{self.step}"
        return " ".join([head, *(digest_of(self._slice(at)) for at in range(self.count))])

    def _slice(self, at: int) -> Sequence[object] | str:
        return self.row[at * self.step : (at + 1) * self.step]

    def content(self, at: int) -> ValueSnapshot:
        """One slice as it is."""
        held = self._slice(at)
        if isinstance(held, str):
            return ValueSnapshot((SnapshotNode(self.kind, "slice", held),))
        nodes = [QUICK.get(type(one))(one) for one in held]  # type: ignore[misc] # nothing else is sliced
        kind = "map" if self.kind == "map" else "items"
        return ValueSnapshot(
            (SnapshotNode(kind, "slice", items=tuple(range(1, len(nodes) + 1))), *nodes)
        )


def slices_of(sketch: Sketch) -> Slices | None:
    """The slices of what is too large; None if it is not, or has parts that are not plain."""
    mark, text = "", sketch.value or ""
    if sketch.kind in _ROWS and isinstance(sketch.items, tuple | list):
        if len(sketch.items) <= LONGEST_ROW * (2 if sketch.kind == "map" else 1):
            return None
        if (
            not {*map(id, map(type, sketch.items))} <= _QUICK_IDS
        ):  # by id: a metaclass may hash as it likes
            return None
        row = _sorted(sketch.items) if sketch.kind == "set" else sketch.items
        return Slices(sketch.kind, text or mark, row, ROW_SLICE)
    if len(text) > LONGEST_TEXT and not sketch.items:
        size = _size(sketch.kind)
        return Slices(sketch.kind, mark, text, TEXT_SLICE // size * size or size) if size else None
    return None


def _size(kind: str) -> int:
    """The characters that belong together in a text or block; 0 if it is neither."""
    if kind.startswith("block:"):
        return struct.calcsize(block_format(SnapshotNode(kind, "")))
    return 1 if kind in _TEXTS else 0


_QUICK_IDS: Final = frozenset(map(id, QUICK.types))


def _sorted(members: Sequence[object]) -> list[object]:
    """Members of a set in an order that their values give.

    Floats by their size, so that close ones stay neighbours.
    """
    return sorted(members, key=_order)


def _order(one: object) -> tuple[str, bool, object]:
    name = type(one).__name__
    if isinstance(one, int | float):
        return (name, one != one, one if one == one else 0)  # noqa: PLR0124 - true of NaN alone
    return (name, False, one if isinstance(one, str | bytes) else 0)


def digest_of(held: Sequence[object] | str) -> str:
    """The digest of a slice: `ascii` tells plain values apart, in every version of Python alike."""
    if not isinstance(held, str):
        try:
            held = "\n".join(map(ascii, held))
        except ValueError:  # an int of more digits than Python writes
            held = "\n".join(f"{one:x}" if type(one) is int else ascii(one) for one in held)
    return blake2b(held.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# --- for the judge


@dataclass(frozen=True, slots=True)
class Digests:
    """What a sliced node says."""

    kind: str
    mark: str
    count: int
    step: int
    slices: tuple[str, ...]

    @classmethod
    def of(cls, node: SnapshotNode) -> Digests:
        """Of a node that was checked."""
        head, *slices = (node.value or "").split(" ")
        kind, mark, count, step = head.split("|")
        return cls(kind, mark, int(count), int(step), tuple(slices))

    def differing(self, other: Digests) -> list[int]:
        """The slices that are not the same by their digests."""
        pairs = zip(self.slices, other.slices, strict=False)
        return [at for at, (mine, yours) in enumerate(pairs) if mine != yours]

    def is_content(self, at: int, content: ValueSnapshot) -> bool:
        """Whether this is the slice of which the digest was told."""
        root, *nodes = content.nodes
        try:
            held = [_revived(one) for one in nodes] if self.kind in _ROWS else root.value or ""
            return (
                root.kind == ("items" if self.kind == "set" else self.kind)
                and digest_of(held) == self.slices[at]
            )
        except (ValueError, KeyError, UnicodeError):
            return False


def _revived(node: SnapshotNode) -> object:
    """The plain value that a node of a slice stands for. ValueError or KeyError if it is none."""
    text = node.value or ""
    if node.kind == "surrogates":
        return text.encode("latin-1").decode("utf-8", "surrogatepass")
    if node.kind == "atom":
        return {"ellipsis": ..., "NotImplementedType": NotImplemented}[node.type]
    return _REVIVED[node.kind](text)


_REVIVED: Final[Mapping[str, Callable[[str], object]]] = {
    "none": lambda _: None,
    "bool": lambda text: text == "True",
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "str": lambda text: text,
    "bytes": lambda text: text.encode("latin-1"),
}


Contents = Mapping[Place, ValueSnapshot]


def whole_digest(data: bytes) -> str:
    """The digest of something in one piece."""
    return blake2b(data, digest_size=32).hexdigest()

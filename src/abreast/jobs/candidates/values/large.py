"""Digests of values too large to be recorded: long rows, texts and blocks, slice by slice.

Two slices with the same digest are equal. The digest covers everything that counts under the strict
rules: the type of each member (1, 1.0 and True differ), the sign of a zero, the order of a list or
dict; NaN equals NaN. Members of a set are sorted first. Slices with different digests are read
again (`WantedSlices`) and compared by the ordinary rules: different digests alone are not a
difference.

Only rows of plain values are sliced. Nothing in them can be shared or changed, so that each slice
can be compared by itself.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Self

from abreast.jobs.candidates.values.object_layout import ValueDescription
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot, block_format
from abreast.jobs.candidates.values.stdlib_types import ATOMS

MAX_UNSLICED_ITEMS: Final = 20_000  # members of a row that is not sliced
MAX_UNSLICED_TEXT: Final = 200_000  # characters or bytes of a text or block that is not sliced
ITEMS_PER_SLICE: Final = 1_000
TEXT_PER_SLICE: Final = 50_000
_ROW_KINDS: Final = frozenset({"items", "set", "map"})

Place = tuple[int, int]  # a slice: the index of the node, and the index of the slice in it
Contents = Mapping[Place, ValueSnapshot]


@dataclass(slots=True)
class WantedSlices:
    """The slices of one snapshot whose contents are wanted, and the contents that were found."""

    places: frozenset[Place] = frozenset()
    found: dict[Place, ValueSnapshot] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of one value: runs of a row's members, or of a text's characters."""

    kind: str
    mark: str
    row: Sequence[object] | str
    step: int

    @property
    def count(self) -> int:
        """The number of slices."""
        return -(-len(self.row) // self.step)

    def digested(self) -> str:
        """Return the value of a `sliced` node: kind, mark, lengths, and all digests."""
        head = f"{self.kind}|{self.mark}|{len(self.row)}|{self.step}"
        return " ".join([head, *(digest_of(self._slice(at)) for at in range(self.count))])

    def _slice(self, at: int) -> Sequence[object] | str:
        return self.row[at * self.step : (at + 1) * self.step]

    def content(self, at: int) -> ValueSnapshot:
        """Return the content of one slice."""
        held = self._slice(at)
        if isinstance(held, str):
            return ValueSnapshot((SnapshotNode(self.kind, "slice", held),))
        nodes = [ATOMS.get(type(one))(one) for one in held]  # type: ignore[misc] # only atoms
        root = SnapshotNode(
            "map" if self.kind == "map" else "items",
            "slice",
            items=tuple(range(1, len(nodes) + 1)),
        )
        return ValueSnapshot((root, *nodes))


def slices_of(description: ValueDescription) -> Slices | None:
    """Return the slices of a large value; None if it is small, or has parts that are not atoms."""
    kind, text, items = description.kind, description.value or "", description.items
    if kind in _ROW_KINDS and isinstance(items, tuple | list):
        if (
            len(items) <= MAX_UNSLICED_ITEMS * (2 if kind == "map" else 1)
            # By id: a metaclass may hash as it likes.
            or not {*map(id, map(type, items))} <= _ATOM_TYPE_IDS
        ):
            return None
        # Members of a set are sorted by type and value, so that close floats are adjacent.
        return Slices(
            kind, text, sorted(items, key=_sort_key) if kind == "set" else items, ITEMS_PER_SLICE
        )
    is_block, is_text = kind.startswith("block:"), kind in {"str", "surrogates", "bytes"}
    if len(text) <= MAX_UNSLICED_TEXT or items or not (is_block or is_text):
        return None
    size = struct.calcsize(block_format(SnapshotNode(kind, ""))) if is_block else 1
    return Slices(kind, "", text, TEXT_PER_SLICE // size * size or size)


_ATOM_TYPE_IDS: Final = frozenset(map(id, ATOMS.types))


def _sort_key(one: object) -> tuple[str, bool, object]:
    name = type(one).__name__
    if isinstance(one, int | float):
        return (name, one != one, one if one == one else 0)  # noqa: PLR0124 - a test for NaN
    return (name, False, one if isinstance(one, str | bytes) else 0)


def digest_of(held: Sequence[object] | str) -> str:
    """Return the digest of a slice: `ascii` differs for different atoms, in all versions."""
    if not isinstance(held, str):
        try:
            held = "\n".join(map(ascii, held))
        except ValueError:  # an int with more digits than `str` converts
            held = "\n".join(f"{one:x}" if type(one) is int else ascii(one) for one in held)
    return blake2b(held.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# --- comparing digests


@dataclass(frozen=True, slots=True)
class Digests:
    """The parsed value of a `sliced` node."""

    kind: str
    mark: str
    count: int
    step: int
    slices: tuple[str, ...]

    @classmethod
    def of(cls, node: SnapshotNode) -> Self:
        """Parse the value of a node that was checked."""
        head, *slices = (node.value or "").split(" ")
        kind, mark, count, step = head.split("|")
        return cls(kind, mark, int(count), int(step), tuple(slices))

    def differing(self, other: Self) -> list[int]:
        """Return the indexes of the slices whose digests differ."""
        pairs = zip(self.slices, other.slices, strict=False)
        return [at for at, (mine, yours) in enumerate(pairs) if mine != yours]

    def is_content(self, at: int, content: ValueSnapshot) -> bool:
        """Whether a slice has the digest that was recorded for it."""
        root, *nodes = content.nodes
        try:
            held = (
                [_plain_value(one) for one in nodes]
                if self.kind in _ROW_KINDS
                else root.value or ""
            )
            return (
                root.kind == ("items" if self.kind == "set" else self.kind)
                and digest_of(held) == self.slices[at]
            )
        except (ValueError, KeyError, UnicodeError):
            return False


def _plain_value(node: SnapshotNode) -> object:
    if node.kind == "atom":
        return {"ellipsis": ..., "NotImplementedType": NotImplemented}[node.type]
    return _VALUE_OF_KIND[node.kind](node.value or "")


_VALUE_OF_KIND: Final[Mapping[str, Callable[[str], object]]] = {
    "none": lambda _: None,
    "bool": lambda text: text == "True",
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "str": lambda text: text,
    "surrogates": lambda text: text.encode("latin-1").decode("utf-8", "surrogatepass"),
    "bytes": lambda text: text.encode("latin-1"),
}


def whole_digest(data: bytes) -> str:
    """Return the digest of data that is not sliced."""
    return blake2b(data, digest_size=32).hexdigest()

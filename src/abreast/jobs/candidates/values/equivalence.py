"""Which members of two sets may be each other: nodes numbered by their content, alike on both sides.

Two nodes with different numbers are different. Nodes with the same number are equal, unless the
number is coarse: on a cycle, or with floats that need only be close, it says that they may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from abreast.jobs.candidates.rules import Rules, seen_by
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot

_UNREAD = frozenset({"unknown", "rest", "whole"})
_TEXTS = ("str|", "bytes|", "surrogates|")


def _is_unread(node: SnapshotNode) -> bool:
    """Whether a node can't be told from another one that is the same: but for texts, equal digests are not needed."""
    return node.kind in _UNREAD or (
        node.kind == "sliced" and not (node.value or "").startswith(_TEXTS)
    )


@dataclass(frozen=True, slots=True)
class Equivalence:
    """What is known of a node and all beneath it, without looking at the other side."""

    number: int
    coarse: bool  # nodes of the same number may differ
    shared: bool  # something in it can change, so that it matters which one it is
    murky: bool  # something in it can't be read


@dataclass(slots=True)
class GraphSide:
    """One of two portraits, as the rules see it. Both sides number in the same `table`."""

    portrait: ValueSnapshot
    rules: Rules
    table: dict[object, int]
    _nodes: dict[int, SnapshotNode] = field(default_factory=dict)
    _known: dict[int, Equivalence] = field(default_factory=dict)

    def node(self, index: int) -> SnapshotNode:
        """A node without what the rules leave out."""
        found = self._nodes.get(index)
        if found is None:
            found = self._nodes[index] = seen_by(self.rules, self.portrait.nodes[index])
        return found

    def likeness(self, index: int) -> Equivalence:
        """The number of a node, and of all beneath it: reckoned once."""
        if index not in self._known:
            for group in _components(self, index, self._known):
                self._reckon(group)
        return self._known[index]

    def _reckon(self, group: list[int]) -> None:
        """The nodes of one cycle, or a single one; all that they lead to is known already."""
        round_about = len(group) > 1 or group[0] in self.node(group[0]).parts
        inside = frozenset(group) if round_about else frozenset[int]()
        beneath = [
            self._known[part]
            for one in group
            for part in self.node(one).parts
            if part not in inside
        ]
        nodes = [self.node(one) for one in group]
        coarse = (
            round_about or any(map(self._is_coarse, nodes)) or any(one.coarse for one in beneath)
        )
        shared = any(node.identity for node in nodes) or any(one.shared for one in beneath)
        murky = any(map(_is_unread, nodes)) or any(one.murky for one in beneath)
        for one in group:
            key = self._key(one, inside)
            number = self.table.setdefault(key, len(self.table))
            self._known[one] = Equivalence(number, coarse, shared, murky)

    def _is_coarse(self, node: SnapshotNode) -> bool:
        return node.kind.startswith("block:") or (node.kind == "float" and not self.rules.exact)

    def _key(self, index: int, inside: frozenset[int]) -> object:
        node = self.node(index)
        numbers = [-1 if one in inside else self._known[one].number for one in node.items]
        if node.kind == "set":
            numbers.sort()
        elif node.kind == "map" and not self.rules.dict_order and node.value != "ordered":
            pairs = sorted(zip(numbers[::2], numbers[1::2], strict=True))
            numbers = [one for pair in pairs for one in pair]
        state = tuple(-1 if one in inside else self._known[one].number for one in node.attributes)
        return (node.kind, node.type, self._value(node), tuple(numbers), node.names, state)

    def _value(self, node: SnapshotNode) -> str | None:
        if self._is_coarse(node):
            return None
        if (
            node.kind == "float"
            and not self.rules.signed_zero
            and float.fromhex(node.value or "") == 0
        ):
            return "0"
        return node.value


def _components(side: GraphSide, start: int, known: dict[int, Equivalence]) -> Iterator[list[int]]:
    """The cycles and single nodes that can be reached, each after all that it leads to: Tarjan's, without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    path: list[tuple[int, Iterator[int]]] = []

    def enter(index: int) -> None:
        order[index] = low[index] = len(order)
        open_nodes.append(index)
        is_open.add(index)
        path.append((index, iter(side.node(index).parts)))

    enter(start)
    while path:
        index, parts = path[-1]
        for part in parts:
            if part in is_open:
                low[index] = min(low[index], order[part])
            elif part not in order and part not in known:
                enter(part)
                break
        else:
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[index])
            if low[index] == order[index]:
                at = open_nodes.index(index, -_tail(open_nodes, index))
                group, open_nodes[at:] = open_nodes[at:], []
                is_open.difference_update(group)
                yield group


def _tail(open_nodes: list[int], index: int) -> int:
    """How far from the end a node stands: it is near, and a search from the front would take its time."""
    return next(back for back, one in enumerate(reversed(open_nodes), 1) if one == index)

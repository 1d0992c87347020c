"""Equivalence classes of nodes, numbered by content in the same way for both snapshots.

They tell which members of two sets may be equal. Two nodes with different numbers are different.
Nodes with the same number are equal, unless the class is coarse: on a cycle, or with floats that
need only be close, nodes of one class may still differ.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from abreast.jobs.candidates.rules import Rules, seen_by
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot


def _is_unread(node: SnapshotNode) -> bool:
    """Whether nodes with different numbers may be equal, because their content isn't known.

    Of sliced values, only texts need equal digests: close floats, for example, have different
    ones.
    """
    return node.kind in {"unknown", "rest", "whole"} or (
        node.kind == "sliced"
        and not (node.value or "").startswith(("str|", "bytes|", "surrogates|"))
    )


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The class of a node, from it and all its parts, without looking at the other snapshot."""

    number: int
    coarse: bool  # nodes of the same number may differ
    mutable: bool  # some part is mutable, so that its identity matters
    unreadable: bool  # some part can't be read


@dataclass(slots=True)
class GraphSide:
    """One of two snapshots under the rules. Both take the numbers of classes from one `table`."""

    snapshot: ValueSnapshot
    rules: Rules
    table: dict[object, int]
    _nodes: dict[int, SnapshotNode] = field(default_factory=dict)
    _classes: dict[int, Equivalence] = field(default_factory=dict)

    def node(self, index: int) -> SnapshotNode:
        """Return a node without the parts that the rules leave out."""
        if index not in self._nodes:
            self._nodes[index] = seen_by(self.rules, self.snapshot.nodes[index])
        return self._nodes[index]

    def equivalence(self, index: int) -> Equivalence:
        """Return the class of a node; it is computed once, together with those of all its parts."""
        if index not in self._classes:
            for group in _components(self, index, self._classes):
                self._classify(group)
        return self._classes[index]

    def numbers(self, indexes: Iterable[int]) -> Counter[int]:
        """Return how many of these nodes are in each class."""
        return Counter(self.equivalence(index).number for index in indexes)

    def _classify(self, group: list[int]) -> None:
        """Number the nodes of a cycle, or a single node, once all its other parts are numbered."""
        is_cycle = len(group) > 1 or group[0] in self.node(group[0]).parts
        cycle = frozenset(group) if is_cycle else frozenset[int]()
        parts_outside = [
            self._classes[part]
            for one in group
            for part in self.node(one).parts
            if part not in cycle
        ]
        nodes = [self.node(one) for one in group]
        coarse = (
            is_cycle or any(map(self._is_coarse, nodes)) or any(one.coarse for one in parts_outside)
        )
        mutable = any(node.identity for node in nodes) or any(one.mutable for one in parts_outside)
        unreadable = any(map(_is_unread, nodes)) or any(one.unreadable for one in parts_outside)
        for one in group:
            number = self.table.setdefault(self._key(one, cycle), len(self.table))
            self._classes[one] = Equivalence(number, coarse, mutable, unreadable)

    def _is_coarse(self, node: SnapshotNode) -> bool:
        return node.kind.startswith("block:") or (node.kind == "float" and not self.rules.exact)

    def _key(self, index: int, cycle: frozenset[int]) -> object:
        node = self.node(index)
        numbers = [-1 if one in cycle else self._classes[one].number for one in node.items]
        if node.kind == "set":
            numbers.sort()
        elif node.kind == "map" and not self.rules.dict_order and node.value != "ordered":
            numbers = [
                one
                for pair in sorted(zip(numbers[::2], numbers[1::2], strict=True))
                for one in pair
            ]
        state = tuple(-1 if one in cycle else self._classes[one].number for one in node.attributes)
        return (node.kind, node.type, self._compared_value(node), tuple(numbers), node.names, state)

    def _compared_value(self, node: SnapshotNode) -> str | None:
        if self._is_coarse(node):
            return None
        zero = node.kind == "float" and float.fromhex(node.value or "") == 0
        return "0" if zero and not self.rules.signed_zero else node.value


def _components(side: GraphSide, start: int, known: dict[int, Equivalence]) -> Iterator[list[int]]:
    """Yield the strongly connected components, each after those that it refers to.

    Tarjan's algorithm, without recursion.
    """
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
                # It is near the end, so a search from the front would be slower.
                back = next(at for at, one in enumerate(reversed(open_nodes), 1) if one == index)
                group, open_nodes[-back:] = open_nodes[-back:], []
                is_open.difference_update(group)
                yield group

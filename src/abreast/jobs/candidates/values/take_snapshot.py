"""Takes the snapshot of a value: every part of it, in one walk that calls none of its methods.

Only generators and built-in iterators run code, because there is no other way to read them: the
walk consumes them when it reaches them, which runs the generator's code (or that of `map`,
`filter` and the like). They are empty afterwards. Each yielded value is read before the next one is
requested, so that a list which is yielded repeatedly and changed in between shows each of its
states. After `bound` values the iterator is treated as endless. A generator that neither yields nor
ends is stopped from outside, by ending its process.

The walk keeps its own stack, so that a value may be nested 10,000 levels deep.

With `wanted`, what is too large to be kept is digested: long rows of plain values, texts and blocks
slice by slice, and beyond `nodes` parts the whole graph, node by node as they are read. Two digests
of a graph are equal only if every node is equal, with everything it refers to.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from abreast.jobs.candidates.values.large import MAX_UNSLICED_TEXT, WantedSlices, slices_of
from abreast.jobs.candidates.values.object_layout import (
    Beyond,
    Owner,
    Unreadable,
    ValueDescription,
    is_local_class,
)
from abreast.jobs.candidates.values.snapshot import RAISED, SnapshotNode, ValueSnapshot
from abreast.jobs.candidates.values.stdlib_types import (
    ATOMS,
    LABELS,
    describe,
    is_iterator,
    is_pending,
    label,
)

MAX_NODES = 1_000_000
MAX_DIGESTED_NODES = 2_000_000
MAX_TOTAL_TEXT = 2_000_000  # characters of all values that are kept, if the rest is digested
MAX_YIELDED = 10_000  # values that are read from one iterator


def take_snapshot(
    value: object,
    *,
    bound: int = MAX_YIELDED,
    nodes: int = MAX_NODES,
    consume: bool = True,
    wanted: WantedSlices | None = None,
) -> ValueSnapshot:
    """Return the snapshot of a value.

    A part that can't be read becomes a node with the reason, never an exception; such a node is
    equal to no other. At most `bound` values are read from each iterator; with `consume=False`
    iterators are not consumed, and only their type is recorded. Parts beyond `nodes` make the value
    incomparable; with `wanted`, they are digested, and so are long rows and texts, and the contents
    of the wanted slices are stored in `wanted.found`.

    >>> str(take_snapshot({"a": [1, 2.5, None]}))
    "{'a': [1, 2.5, None]}"
    """
    return _Walk(bound, nodes, wanted, consume=consume).run(value)


@dataclass(slots=True)
class _OpenIterator:
    """An iterator that is being consumed, with the values it has yielded and their nodes."""

    source: Iterator[object]
    index: int
    items: list[int] = field(default_factory=list)
    alive: list[object] = field(default_factory=list)
    has_compound: bool = False  # some value is not an atom, so it may be mutable


class _TypeInfo(NamedTuple):
    """What a walk needs to know of a type; computed once per walk."""

    cls: type  # a reference, so that its id isn't reused
    label: str
    is_iterator: bool
    is_pending: bool
    is_local: bool


class _Walk:
    def __init__(
        self, bound: int, max_nodes: int, wanted: WantedSlices | None, *, consume: bool
    ) -> None:
        self._max_yielded, self._max_nodes = bound, max_nodes
        self._slices, self._consume = wanted, consume
        self._count = self._total_text = 0
        self._digest: blake2b | None = None  # of all nodes, once there are more than can be kept
        self._digest_invalid = ""  # why the digested nodes can't be compared; empty if they can
        self._nodes: list[SnapshotNode | None] = []
        self._classes: dict[int, type] = {}
        # Maps the id of a value to its node and the value itself, which keeps the id from being
        # reused. One mapping for each open iterator: between two values everything may have
        # changed, so that earlier nodes are not used again.
        self._node_by_id: list[dict[int, tuple[int, object]]] = [{}]
        self._iterator_by_id: dict[int, tuple[int, object]] = {}
        self._type_info: dict[int, _TypeInfo] = {}
        self._owner_by_id: dict[int, tuple[int, object]] = {}
        self._pending: list[tuple[int, object] | _OpenIterator] = []

    def run(self, value: object) -> ValueSnapshot:
        self._node_of(value)
        while self._pending:
            task = self._pending.pop()
            if type(task) is _OpenIterator:
                self._pull_next(task)
            else:
                self._describe(*cast("tuple[int, object]", task))
        if self._count > len(self._nodes):
            digest = f"{self._count} {self._digest.hexdigest() if self._digest else ''}"
            kind = "unknown" if self._digest_invalid else "rest"
            self._nodes.append(SnapshotNode(kind, "too large", self._digest_invalid or digest))
        return ValueSnapshot(tuple(cast("list[SnapshotNode]", self._nodes)), self._classes)

    def _next_index(self) -> int:
        """Reserve the index of the next node.

        A node beyond the limit has an index too: it is digested instead of kept.
        """
        index = self._count
        self._count += 1
        if index < self._max_nodes:
            self._nodes.append(None)
        elif self._digest is None:
            self._digest = blake2b(digest_size=32)
            for at, node in enumerate(self._nodes):
                if node is not None:
                    self._update_digest(at, node)
        return index

    def _update_digest(self, index: int, node: SnapshotNode) -> None:
        if self._digest is not None:
            self._digest.update(f"{index}{tuple(node)!r}".encode())

    def _set(self, index: int, node: SnapshotNode) -> None:
        if self._slices is not None:
            self._update_digest(index, node)
            # The text of floats doesn't count: its length differs between close ones.
            self._total_text += len(node.value or "") if node.kind != "float" else 0
            if self._total_text > MAX_TOTAL_TEXT:
                self._max_nodes = min(self._max_nodes, self._count)
        if index < len(self._nodes):
            if max(node.parts, default=0) >= self._max_nodes:
                # Parts that are not kept become the node of the rest, which comes last.
                items, attributes = (
                    tuple([min(one, self._max_nodes) for one in parts])
                    for parts in (node.items, node.attributes)
                )
                node = node._replace(items=items, attributes=attributes)
            self._nodes[index] = node

    def _node_of(self, value: object) -> int:
        if self._count >= (self._max_nodes if self._slices is None else MAX_DIGESTED_NODES):
            return self._overflow_node()
        if (make_atom := ATOMS.get(type(value))) is not None:
            index = self._next_index()
            node = make_atom(cast("Any", value))
            if self._slices is not None and len(node.value or "") > MAX_UNSLICED_TEXT:
                digests = self._digest_slices(index, ValueDescription(node.kind, node.value))
                node = node._replace(kind="sliced", value=digests) if digests is not None else node
            self._set(index, node)
            return index
        if type(value) is Owner:
            return self._owner_node(value)
        known = self._node_by_id[-1].get(id(value)) or self._iterator_by_id.get(id(value))
        if known:
            return known[0]
        index = self._next_index()
        self._node_by_id[-1][id(value)] = (index, value)
        self._pending.append((index, value))
        return index

    def _overflow_node(self) -> int:
        """Return the index of the one node that stands for all parts beyond the limit."""
        last = self._nodes[-1]
        if self._count == len(self._nodes) and (last is None or last.kind != "unknown"):
            self._nodes.append(
                SnapshotNode("unknown", "too large", f"it has more than {self._max_nodes} parts")
            )
            self._count += 1
        elif self._count > len(self._nodes):
            self._digest_invalid = (
                self._digest_invalid or f"it has more than {MAX_DIGESTED_NODES} parts"
            )
        return self._count - 1

    def _owner_node(self, owner: Owner) -> int:
        index, _ = self._owner_by_id.setdefault(id(owner.of), (self._count, owner.of))
        if index == self._count:
            self._set(self._next_index(), SnapshotNode("object", "memory", identity=True))
        return index

    def _describe(self, index: int, value: object) -> None:
        cls = type(value)
        if (info := self._type_info.get(id(cls))) is None:
            is_local = cls not in LABELS and not issubclass(cls, type) and is_local_class(cls)
            info = _TypeInfo(cls, label(cls), is_iterator(cls), is_pending(cls), is_local)
            self._type_info[id(cls)] = info
        if info.is_iterator or (info.is_pending and not self._consume):
            self._open_iterator(index, value)
            return
        try:
            description = describe(value)
        except Exception as error:  # noqa: BLE001 - no value may fail the caller
            reason = (
                str(error)
                if isinstance(error, Unreadable)
                else f"reading it failed: {type(error).__name__}"
            )
            self._set_unknown(index, label(cls), reason)
            return
        if issubclass(cls, type):
            self._classes[index] = cast("type", value)
        elif cls not in LABELS:
            self._classes[index] = cls
            if info.is_local:
                description.state.append(("<class>", cls))
        self._set_described(index, description, description.label or info.label)

    def _set_unknown(self, index: int, name: str, reason: str) -> None:
        self._set(index, SnapshotNode("unknown", name, reason))
        if index >= len(self._nodes):
            self._digest_invalid = self._digest_invalid or f"a {name} in it: {reason}"

    def _digest_slices(self, index: int, description: ValueDescription) -> str | None:
        """Return the digests of a long row, text or block, and store the wanted slices.

        None if the value is not too large.
        """
        slices = slices_of(description) if self._slices is not None else None
        if slices is None or self._slices is None:
            return None
        for node, at in self._slices.places:
            if node == index and 0 <= at < slices.count:
                self._slices.found[node, at] = slices.content(at)
        return slices.digested()

    def _set_described(
        self, index: int, description: ValueDescription, name: str, known: tuple[int, ...] = ()
    ) -> None:
        """Record a value; `known` are the nodes of items that were read before."""
        if (digests := self._digest_slices(index, description)) is not None:
            description.kind, description.value, description.items = "sliced", digests, ()
        start = len(self._pending)
        items = (*known, *[self._node_of(one) for one in description.items])
        names = tuple([name for name, _ in description.state])
        attributes = tuple([self._node_of(one) for _, one in description.state])
        # In the order of the parts, so that iterators are consumed in that order too.
        self._pending[start:] = reversed(self._pending[start:])
        self._set(
            index,
            SnapshotNode(
                description.kind,
                name,
                description.value,
                items,
                names,
                attributes,
                description.identity,
            ),
        )

    # --- iterators

    def _open_iterator(self, index: int, value: object) -> None:
        if not self._consume:
            self._set(index, SnapshotNode("pending", label(type(value)), identity=True))
            return
        self._iterator_by_id[id(value)] = (index, value)
        self._node_by_id.append({})
        self._pending.append(_OpenIterator(cast("Iterator[object]", value), index))

    def _pull_next(self, iterator: _OpenIterator) -> None:
        if len(iterator.items) >= self._max_yielded or self._count >= self._max_nodes:
            self._close_iterator(
                iterator, [("<more>", Beyond(f"it goes on after {len(iterator.items)} values"))]
            )
            return
        try:
            value = next(iterator.source)
        except StopIteration as stop:
            self._close_iterator(
                iterator, [("<returned>", stop.value)] if stop.value is not None else []
            )
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - part of the record
            self._close_iterator(iterator, [(RAISED, error)])
        else:
            self._node_by_id[-1] = {}
            self._pending.append(iterator)
            iterator.items.append(self._node_of(value))
            iterator.alive.append(value)
            iterator.has_compound = iterator.has_compound or type(value) not in ATOMS

    def _close_iterator(self, iterator: _OpenIterator, state: list[tuple[str, object]]) -> None:
        """Record an iterator that has ended.

        The values it yielded are read once more, to record what they share with other values.
        """
        self._node_by_id.pop()
        if iterator.has_compound:
            state = [*state, ("<afterwards>", iterator.alive)]
        description = ValueDescription("iterator", state=state, identity=True)
        self._set_described(
            iterator.index, description, label(type(iterator.source)), tuple(iterator.items)
        )

"""From a value to its portrait: every part of it, in one walk that calls none of its methods.

Two things run code all the same, because there is no other way to know them: generators and
built-in iterators are consumed, when the walk comes to them, and the generator's own code runs
(`map`, `filter` and the like run theirs). They are empty afterwards. What each yields is looked at
before the next is asked for, so that one list that is yielded again and again, changed in between,
shows each of its states. After `bound` of them it is given up as endless. A generator that neither
yields nor ends is ended with its process, from outside.

The walk keeps its own stack: a value nested 10,000 levels deep is as good as any.

What is too large to be kept is digested (`wanted`): long rows of plain values, texts and blocks
slice by slice, and beyond `nodes` parts the whole graph, node by node as they are drawn. Two
digests of a graph are the same only if every node is, with all that it leads to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, cast

from abreast.jobs.candidates.values.large import LONGEST_TEXT, WantedSlices, slices_of
from abreast.jobs.candidates.values.object_layout import (
    Beyond,
    Owner,
    Sketch,
    Unreadable,
    is_local_class,
)
from abreast.jobs.candidates.values.resources import is_pending
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot
from abreast.jobs.candidates.values.stdlib_types import LABELS, QUICK, describe, is_iterator, label

MOST_NODES = 1_000_000
MOST_DIGESTED = 2_000_000
MOST_TEXT = 2_000_000  # characters of all values together, if what is too large is digested
MOST_YIELDED = 10_000


def take_snapshot(
    value: object,
    *,
    bound: int = MOST_YIELDED,
    nodes: int = MOST_NODES,
    consume: bool = True,
    wanted: WantedSlices | None = None,
) -> ValueSnapshot:
    """The portrait of a value.

    What can't be read is a node that says why, never an exception: a portrait of it is equal to none. Iterators yield
    at most `bound` values; with `consume=False` they are left alone, and only known by their type. More parts than
    `nodes` are too many to compare; with `wanted`, they are digested, and so are long rows and texts, of which the
    wanted slices are kept in it.

    >>> str(portray({"a": [1, 2.5, None]}))
    "{'a': [1, 2.5, None]}"
    """
    return _Walk(bound, nodes, wanted, consume=consume).run(value)


@dataclass(slots=True)
class _Pull:
    """An iterator that is being consumed: what it has yielded, as nodes and as they are."""

    source: Iterator[object]
    at: int
    items: list[int] = field(default_factory=list)
    alive: list[object] = field(default_factory=list)
    changing: bool = False


class _About:
    """What is known of a type, asked once in a walk."""

    __slots__ = ("cls", "is_iterator", "is_local", "is_pending", "label")

    def __init__(self, cls: type) -> None:
        self.cls = cls  # kept alive, so that its id stays its own
        self.is_iterator = is_iterator(cls)
        self.is_pending = is_pending(cls)
        self.label = label(cls)
        self.is_local = cls not in LABELS and not issubclass(cls, type) and is_local_class(cls)


class _Walk:
    def __init__(
        self, bound: int, most: int, wanted: WantedSlices | None, *, consume: bool
    ) -> None:
        self._bound = bound
        self._most = most
        self._wanted = wanted
        self._count = 0
        self._text = 0
        self._digest: blake2b | None = None
        """Of every node, once there are more than can be kept."""
        self._beyond = ""
        """Why what is digested can't be compared."""
        self._consume = consume
        self._nodes: list[SnapshotNode | None] = []
        self._classes: dict[int, type] = {}
        # By id, with the value itself, which keeps the id from being used again. One for each
        # iterator that is open: between two pulls everything may have changed, so that what was
        # seen before doesn't count.
        self._seen: list[dict[int, tuple[int, object]]] = [{}]
        self._pulled: dict[int, tuple[int, object]] = {}
        self._types: dict[int, _About] = {}
        self._owners: dict[int, tuple[int, object]] = {}
        self._waiting: list[tuple[int, object] | _Pull] = []

    def run(self, value: object) -> ValueSnapshot:
        self._place(value)
        while self._waiting:
            task = self._waiting.pop()
            if type(task) is _Pull:
                self._pull(task)
            else:
                self._draw(*cast("tuple[int, object]", task))
        if self._count > len(self._nodes):
            said = f"{self._count} {self._digest.hexdigest() if self._digest else ''}"
            kind = "unknown" if self._beyond else "rest"
            self._nodes.append(SnapshotNode(kind, "too large", self._beyond or said))
        return ValueSnapshot(tuple(cast("list[SnapshotNode]", self._nodes)), self._classes)

    def _allot(self) -> int:
        """The number of the next node.

        What is too much to be kept has a number too: it is digested.
        """
        index = self._count
        self._count += 1
        if index < self._most:
            self._nodes.append(None)
        elif self._digest is None:
            self._digest = blake2b(digest_size=32)
            for at, node in enumerate(self._nodes):
                if node is not None:
                    self._feed(at, node)
        return index

    def _feed(self, index: int, node: SnapshotNode) -> None:
        if self._digest is not None:
            self._digest.update(f"{index}{tuple(node)!r}".encode())

    def _set(self, index: int, node: SnapshotNode) -> None:
        if self._wanted is not None:
            self._feed(index, node)
            self._text += (
                len(node.value or "") if node.kind != "float" else 0
            )  # of close ones it differs
            if self._text > MOST_TEXT:
                self._most = min(self._most, self._count)
        if index < len(self._nodes):
            clamped = node if max(node.parts, default=0) < self._most else self._clamped(node)
            self._nodes[index] = clamped

    def _clamped(self, node: SnapshotNode) -> SnapshotNode:
        items = tuple([min(one, self._most) for one in node.items])
        return node._replace(
            items=items, attributes=tuple([min(one, self._most) for one in node.attributes])
        )

    def _place(self, value: object) -> int:
        """The node of a value: drawn already, drawn now if that is quick, or waiting."""
        if self._count >= (self._most if self._wanted is None else MOST_DIGESTED):
            return self._too_many()
        quick = QUICK.get(type(value))
        if quick is not None:
            index = self._allot()
            node = quick(cast("Any", value))
            if self._wanted is not None and len(node.value or "") > LONGEST_TEXT:
                said = self._sliced(index, Sketch(node.kind, node.value))
                node = node._replace(kind="sliced", value=said) if said is not None else node
            self._set(index, node)
            return index
        if type(value) is Owner:
            return self._owner(value)
        known = self._seen[-1].get(id(value)) or self._pulled.get(id(value))
        if known:
            return known[0]
        index = self._allot()
        self._seen[-1][id(value)] = (index, value)
        self._waiting.append((index, value))
        return index

    def _too_many(self) -> int:
        """The one node for all that is too much."""
        last = self._nodes[-1]
        if self._count == len(self._nodes) and (last is None or last.kind != "unknown"):
            self._nodes.append(
                SnapshotNode("unknown", "too large", f"it has more than {self._most} parts")
            )
            self._count += 1
        elif self._count > len(self._nodes):
            self._beyond = self._beyond or f"it has more than {MOST_DIGESTED} parts"
        return self._count - 1

    def _owner(self, owner: Owner) -> int:
        index, _ = self._owners.setdefault(id(owner.of), (self._count, owner.of))
        if index == self._count:
            self._set(self._allot(), SnapshotNode("object", "memory", identity=True))
        return index

    def _draw(self, index: int, value: object) -> None:
        cls = type(value)
        about = self._types.get(id(cls))
        if about is None:
            about = self._types[id(cls)] = _About(cls)
        if about.is_iterator or (about.is_pending and not self._consume):
            self._open(index, value)
            return
        try:
            sketch = describe(value)
        except Unreadable as reason:
            self._unknown(index, label(cls), str(reason))
            return
        except Exception as error:  # noqa: BLE001 - a value half made, or a library's own trouble: never the caller's
            self._unknown(index, label(cls), f"reading it failed: {type(error).__name__}")
            return
        if issubclass(cls, type):
            self._classes[index] = cast("type", value)
        elif cls not in LABELS:
            self._classes[index] = cls
            if about.is_local:
                sketch.state.append(("<class>", cls))
        self._finish(index, sketch, sketch.label or about.label)

    def _unknown(self, index: int, name: str, reason: str) -> None:
        self._set(index, SnapshotNode("unknown", name, reason))
        if index >= len(self._nodes):
            self._beyond = self._beyond or f"a {name} in it: {reason}"

    def _sliced(self, index: int, sketch: Sketch) -> str | None:
        """What stands for a long row, text or block.

        None if it is none. The wanted slices are kept.
        """
        slices = slices_of(sketch) if self._wanted is not None else None
        if slices is None or self._wanted is None:
            return None
        for node, at in self._wanted.places:
            if node == index and 0 <= at < slices.count:
                self._wanted.found[node, at] = slices.content(at)
        return slices.digested()

    def _finish(self, index: int, sketch: Sketch, name: str) -> None:
        said = self._sliced(index, sketch)
        if said is not None:
            sketch.kind, sketch.value, sketch.items = "sliced", said, ()
        start = len(self._waiting)
        items = tuple([self._place(one) for one in sketch.items])
        names = tuple([name for name, _ in sketch.state])
        attributes = tuple([self._place(one) for _, one in sketch.state])
        # In the order in which they stand, so that iterators are consumed in that order too.
        self._waiting[start:] = reversed(self._waiting[start:])
        self._set(
            index,
            SnapshotNode(
                sketch.kind, name, sketch.value, items, names, attributes, sketch.identity
            ),
        )

    # --- iterators

    def _open(self, index: int, value: object) -> None:
        if not self._consume:
            self._set(index, SnapshotNode("pending", label(type(value)), identity=True))
            return
        self._pulled[id(value)] = (index, value)
        self._seen.append({})
        self._waiting.append(_Pull(cast("Iterator[object]", value), index))

    def _pull(self, pull: _Pull) -> None:
        if len(pull.items) >= self._bound or self._count >= self._most:
            reason = f"it goes on after {len(pull.items)} values"
            self._close(pull, [("<more>", Beyond(reason))])
            return
        try:
            value = next(pull.source)
        except StopIteration as stop:
            self._close(pull, [("<returned>", stop.value)] if stop.value is not None else [])
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - what it raises is part of what it does
            self._close(pull, [("<raised>", error)])
        else:
            self._seen[-1] = {}
            self._waiting.append(pull)
            pull.items.append(self._place(value))
            pull.alive.append(value)
            pull.changing = pull.changing or type(value) not in QUICK

    def _close(self, pull: _Pull, state: list[tuple[str, object]]) -> None:
        """The end of an iterator.

        What it yielded is looked at once more, for what those values share with others.
        """
        self._seen.pop()
        if pull.changing:
            state = [*state, ("<afterwards>", pull.alive)]
        start = len(self._waiting)
        names = tuple(name for name, _ in state)
        attributes = tuple(self._place(one) for _, one in state)
        self._waiting[start:] = reversed(self._waiting[start:])
        name = label(type(pull.source))
        self._set(
            pull.at,
            SnapshotNode(
                "iterator", name, None, tuple(pull.items), names, attributes, identity=True
            ),
        )

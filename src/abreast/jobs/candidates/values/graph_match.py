"""Matches two snapshots: finds the first difference, else the first place it can't compare.

The walk keeps its own stack. A pair of nodes that was visited is taken as equal from then on, so
that cycles end. If sharing counts, each mutable node has exactly one partner on the other side.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from abreast.jobs.candidates.rules import Rules, first_difference
from abreast.jobs.candidates.values.equivalence import GraphSide
from abreast.jobs.candidates.values.large import Contents, Digests
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot, show

# The path to a node: its parent's path and a step, as ("attribute", "name") or ("item", 3).
Path: TypeAlias = "tuple[Path, tuple[str, int | str]] | None"
# The start of the reason of every doubt about values whose digests differ.
TOO_LARGE = "it is too large to be recorded"
_MAX_STEPS = 5_000_000
_MAX_ALIKE_MEMBERS = 64  # members of a set that may be equal and are compared pair by pair
_MAX_DOUBTS = 20  # places that are reported
_MAX_NESTED_TRIALS = 12  # levels of sets within sets that are compared pair by pair
_MAX_TRIALS = 100_000  # all such comparisons together: sets within sets multiply them
# Nodes of these kinds are the same if all their fields are equal.
_ATOM_KINDS = frozenset({"none", "bool", "int", "float", "str", "surrogates", "bytes"})
_WHOLE_DIGEST_KINDS = frozenset({"rest", "whole"})  # one digest stands for the whole
# An unknown node of these types may be a value of any type.
_TYPE_UNKNOWN = frozenset({"too large", "abreast.jobs.candidates.values.object_layout.Beyond"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where the two are not known to be the same, and why."""

    path: Path
    left: int | None
    right: int | None
    reason: str


class ValueDifference(Finding):
    """Where the two differ."""


class Doubt(Finding):
    """Where the two can't be compared."""


# The index of the node on each side, and the index of the slice in it.
Unread: TypeAlias = tuple[int, int, int]
Pair: TypeAlias = tuple[int, int, Path]
Parts: TypeAlias = list[Pair | ValueDifference]


class GraphMatch:
    """One comparison of two sides; `run` it once."""

    def __init__(
        self,
        left: GraphSide,
        right: GraphSide,
        rules: Rules,
        *,
        contents: tuple[Contents, Contents] = ({}, {}),
        nested: int = 0,
        trials: list[int] | None = None,
    ) -> None:
        """Prepare a match. `contents` has the slices of both sides that were read again."""
        self._contents = contents
        self.unread: list[Unread] = []  # slices whose digests differ and that are not in `contents`
        self._left, self._right, self._rules = left, right, rules
        self._nested = nested
        # The number of trials left to a comparison and, in the same list, all trials within it.
        self._trials = trials or [_MAX_TRIALS]
        self._right_of: dict[int, tuple[int, Path]] = {}
        self._left_of: dict[int, tuple[int, Path]] = {}
        self._seen: set[tuple[int, int]] = set()
        self.doubts: list[Doubt] = []  # the places that can't be compared, in order
        self._guessed = False  # some partners were chosen among several candidates that look equal

    def run(self, left: int, right: int) -> Finding | None:
        """Return the first difference, else the first doubt, else None."""
        waiting: Parts = [(left, right, None)]
        while waiting:
            task = waiting.pop()
            if isinstance(task, ValueDifference):
                return task
            left, right, path = task
            if (left, right) in self._seen:
                continue
            self._seen.add((left, right))
            if len(self._seen) > _MAX_STEPS:
                return Doubt(path, left, right, "it would take too many steps")
            found = self._step(left, right, path)
            self._trials[0] -= self._nested > 0
            if self._trials[0] < 0:  # a result of interrupted trials can't be trusted
                return Doubt(
                    path, left, right, "members of sets could belong together in too many ways"
                )
            if isinstance(found, ValueDifference):
                return found
            waiting.extend(reversed(found))
        return self.doubts[0] if self.doubts else None

    def _step(self, left: int, right: int, path: Path) -> ValueDifference | Parts:
        """Return how two nodes differ in themselves, else the parts to be compared next."""
        if self._is_equal_atom(left, right):
            return []
        one, other = self._left.node(left), self._right.node(right)
        if one.kind == "unknown" or other.kind == "unknown":
            return self._compare_unknown(left, right, path, one, other)
        if (doubt := _doubt_by_digest(one, other)) is not None:
            if doubt:
                self._add_doubt(Doubt(path, left, right, doubt))
            return []
        if reason := self._mismatch(left, right, one, other):
            return ValueDifference(path, left, right, reason)
        if (
            self._rules.sharing
            and (one.identity or other.identity)
            and (conflict := self._bind(left, right, path)) is not None
        ):
            if not self._guessed:
                return conflict
            self._add_doubt(
                Doubt(
                    path,
                    left,
                    right,
                    "members of a set are alike, and which is which can't be told",
                )
            )
        content = self._compare_content(left, right, path, one, other)
        return (
            content
            if isinstance(content, ValueDifference)
            else [*content, *self._compare_state(one, other, path)]
        )

    def _is_equal_atom(self, left: int, right: int) -> bool:
        """Whether two nodes are equal atoms: the most frequent case, decided without a step."""
        one, other = self._left.snapshot.nodes[left], self._right.snapshot.nodes[right]
        return one.kind in _ATOM_KINDS and one == other and not one.attributes and not one.identity

    def _compare_unknown(
        self, left: int, right: int, path: Path, one: SnapshotNode, other: SnapshotNode
    ) -> ValueDifference | Parts:
        if one.type != other.type and not {one.type, other.type} & _TYPE_UNKNOWN:
            return ValueDifference(
                path, left, right, f"it is a {one.type}, and became a {other.type}"
            )
        reason = next(node.value for node in (one, other) if node.kind == "unknown")
        self._add_doubt(Doubt(path, left, right, reason or ""))
        return []

    def _add_doubt(self, doubt: Doubt) -> None:
        if len(self.doubts) < _MAX_DOUBTS:
            self.doubts.append(doubt)

    def _mismatch(
        self, left: int, right: int, one: SnapshotNode, other: SnapshotNode
    ) -> str | None:
        if one.type != other.type or one.kind.partition(":")[0] != other.kind.partition(":")[0]:
            return (
                "it is of another size"
                if one.type == other.type and "sliced" in (one.kind, other.kind)
                else f"it is a {one.type}, and became a {other.type}"
            )
        mine, yours = self._left.snapshot.classes.get(left), self._right.snapshot.classes.get(right)
        is_local = one.items if one.kind == "class" else "<class>" in one.names
        live = mine is not None and yours is not None
        if live and mine is not yours and not is_local and self._rules.class_identity:
            name = one.value if one.kind == "class" else one.type
            return f"there are two classes of that name, {name}"
        if one.kind == "float":
            numbers = float.fromhex(one.value or ""), float.fromhex(other.value or "")
            return None if self._rules.same_float(*numbers) else "the numbers differ"
        # Of a block or slices, first its dtype or typecode is compared, then its content.
        later = one.kind.startswith("block:") or one.kind == "sliced"
        return None if later or one.value == other.value else "the values differ"

    def _bind(self, left: int, right: int, path: Path) -> ValueDifference | None:
        """Make two nodes partners; return the difference if either has another partner."""
        mine, yours = self._right_of.get(left), self._left_of.get(right)
        if mine is None and yours is None:
            self._right_of[left] = (right, path)
            self._left_of[right] = (left, path)
        elif mine is None or mine[0] != right:
            side, partner = ("original", mine) if mine else ("candidate", yours)
            place = path_text(self._left, partner[1] if partner else None)
            return ValueDifference(
                path, left, right, f"in the {side} alone it is the same object as {place}"
            )
        return None

    # --- parts

    def _compare_state(self, one: SnapshotNode, other: SnapshotNode, path: Path) -> Parts:
        if not one.names and not other.names:
            return []
        mine, yours = (dict(zip(node.names, node.attributes, strict=True)) for node in (one, other))
        return [
            (mine[name], yours[name], (path, ("attribute", name)))
            if name in mine and name in yours
            else ValueDifference(
                (path, ("attribute", name)),
                mine.get(name),
                yours.get(name),
                f"only the {'original' if name in mine else 'candidate'} has it",
            )
            for name in mine | yours
        ]

    def _compare_content(
        self, left: int, right: int, path: Path, one: SnapshotNode, other: SnapshotNode
    ) -> ValueDifference | Parts:
        if one.kind.startswith("block:"):
            return self._compare_blocks(left, right, path, one, other)
        if one.kind == "sliced":
            return [
                *self._compare_state(one, other, path),
                *self._compare_slices(left, right, path),
            ]
        if one.kind == "set":
            return self._compare_members(one.items, other.items, path)
        if one.kind == "map":
            return self._map_entries(one, other, path)
        found: Parts = [
            (mine, yours, (path, ("item", at)))
            for at, (mine, yours) in enumerate(zip(one.items, other.items, strict=False))
            if not self._is_equal_atom(mine, yours)
        ]
        return found + self._length_difference(one.items, other.items, path)

    def _length_difference(self, mine: Sequence[int], yours: Sequence[int], path: Path) -> Parts:
        if len(mine) == len(yours):
            return []
        at = min(len(mine), len(yours))
        first = (mine[at] if at < len(mine) else None, yours[at] if at < len(yours) else None)
        return [
            ValueDifference((path, ("item", at)), *first, f"{len(mine)} items became {len(yours)}")
        ]

    def _compare_blocks(
        self, left: int, right: int, path: Path, one: SnapshotNode, other: SnapshotNode
    ) -> Parts:
        """Compare blocks of numbers; the attributes, their format and shape, come first."""
        found = self._compare_state(one, other, path)
        if one.kind != other.kind:
            return [*found, ValueDifference(path, left, right, "the numbers are of another format")]
        if (at := first_difference(self._rules, one, other)) is not None:
            found.append(
                ValueDifference((path, ("item", at)), left, right, f"element {at} differs")
            )
        return found

    def _compare_slices(self, left: int, right: int, path: Path) -> Parts:
        """Compare values too large to be recorded: they are the same if all digests are.

        Slices whose digests differ are compared by their contents.
        """
        one, other = Digests.of(self._left.node(left)), Digests.of(self._right.node(right))
        if (one.kind, one.mark, one.count, one.step) != (
            other.kind,
            other.mark,
            other.count,
            other.step,
        ):
            sizes = f"its size was {one.count}, and became {other.count}"
            return [
                ValueDifference(
                    path,
                    left,
                    right,
                    sizes if one.count != other.count else "it is of another kind",
                )
            ]
        unread: list[Unread] = []
        for at in one.differing(other):
            mine, yours = self._contents[0].get((left, at)), self._contents[1].get((right, at))
            if mine is None or yours is None:
                unread.append((left, right, at))
            elif not (one.is_content(at, mine) and other.is_content(at, yours)):
                self._add_doubt(
                    Doubt(path, left, right, f"{TOO_LARGE}, and was not the same again")
                )
            elif (reason := self._slice_difference(mine, yours)) is not None:
                here: Path = (path, ("item", at * one.step))
                if one.kind != "map" or one.mark or self._rules.dict_order:
                    return [
                        ValueDifference(
                            here, left, right, f"in the {one.step} from here on, {reason}"
                        )
                    ]
                self._add_doubt(
                    Doubt(here, left, right, f"{TOO_LARGE}, and its keys may be elsewhere")
                )
        if unread:
            some = f"{len(unread)} of its {len(one.slices)} slices differ by their digests"
            self._add_doubt(Doubt(path, left, right, f"{TOO_LARGE}, and {some}"))
            self.unread += unread
        return []

    def _slice_difference(self, mine: ValueSnapshot, yours: ValueSnapshot) -> str | None:
        table: dict[object, int] = {}
        left, right = GraphSide(mine, self._rules, table), GraphSide(yours, self._rules, table)
        if (found := GraphMatch(left, right, self._rules).run(0, 0)) is None:
            return None
        sides = [
            show(side.snapshot, at)
            for side, at in ((left, found.left), (right, found.right))
            if at is not None
        ]
        return f"at {path_text(left, found.path)}: {found.reason} ({', then '.join(sides)})"

    def _map_entries(
        self, one: SnapshotNode, other: SnapshotNode, path: Path
    ) -> ValueDifference | Parts:
        if not self._rules.dict_order and one.value != "ordered":
            return self._unordered_entries(one, other, path)
        keys, others = one.items[::2], other.items[::2]
        found: Parts = []
        for at, (mine, yours) in enumerate(zip(keys, others, strict=False)):
            ours, theirs = self._left.equivalence(mine), self._right.equivalence(yours)
            if ours.number != theirs.number and not (ours.unreadable or theirs.unreadable):
                moved = self._left.numbers(keys) == self._right.numbers(others)
                reason = "the same keys come in another order" if moved else "the keys differ"
                return [*found, ValueDifference((path, ("item", at)), mine, yours, reason)]
            found += [
                (mine, yours, (path, ("place", at))),
                (one.items[2 * at + 1], other.items[2 * at + 1], (path, ("key", mine))),
            ]
        return found + self._length_difference(keys, others, path)

    def _unordered_entries(
        self, one: SnapshotNode, other: SnapshotNode, path: Path
    ) -> ValueDifference | Parts:
        pairs = self._compare_members(one.items[::2], other.items[::2], path)
        if isinstance(pairs, ValueDifference):
            return pairs
        values, others = (
            dict(zip(node.items[::2], node.items[1::2], strict=True)) for node in (one, other)
        )
        return pairs + [
            (values[pair[0]], others[pair[1]], (path, ("key", pair[0])))
            for pair in pairs
            if not isinstance(pair, ValueDifference)
        ]

    # --- sets

    def _compare_members(
        self, mine: Sequence[int], yours: Sequence[int], path: Path
    ) -> ValueDifference | Parts:
        """Return the members of two sets in pairs.

        Members that are known only by one digest of all the rest count as one member.
        """
        mine, yours = (
            list(dict.fromkeys(one))
            if any(side.node(at).kind in _WHOLE_DIGEST_KINDS for at in one)
            else one
            for side, one in ((self._left, mine), (self._right, yours))
        )
        groups: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        unreadable = False
        for which, (side, members) in enumerate(((self._left, mine), (self._right, yours))):
            for index in members:
                equivalence = side.equivalence(index)
                groups[equivalence.number][which].append(index)
                unreadable = unreadable or equivalence.unreadable
        pairs: list[tuple[int, int]] = []
        for ours, theirs in groups.values():
            matched = self._match_members(ours, theirs) if len(ours) == len(theirs) else None
            if matched is None:
                return self._unmatched(ours, theirs, path, unreadable=unreadable)
            pairs += matched
        order = {index: at for at, index in enumerate(mine)}
        return [
            (a, b, (path, ("member", a))) for a, b in sorted(pairs, key=lambda pair: order[pair[0]])
        ]

    def _unmatched(
        self, ours: list[int], theirs: list[int], path: Path, *, unreadable: bool
    ) -> ValueDifference | Parts:
        left = ours[0] if len(ours) >= len(theirs) else None
        right = theirs[0] if len(theirs) >= len(ours) else None
        if (
            unreadable
            or len(ours) == len(theirs) > _MAX_ALIKE_MEMBERS
            or self._nested > _MAX_NESTED_TRIALS
        ):
            self._add_doubt(Doubt(path, left, right, "which members belong together can't be told"))
            return []
        step = ("member", left) if left is not None else ("other", right or 0)
        reason = (
            "a member has no equal" if len(ours) == len(theirs) else "only one side has this member"
        )
        return ValueDifference((path, step), left, right, reason)

    def _match_members(self, ours: list[int], theirs: list[int]) -> list[tuple[int, int]] | None:
        """Pair members of one equivalence class so that each pair is equal; None if impossible."""
        kinds = [self._left.equivalence(one) for one in ours]
        if len(ours) == 1 or not any(kind.coarse or kind.mutable for kind in kinds):
            return list(zip(ours, theirs, strict=True))
        if all(self._left.node(one).kind == "float" for one in ours):
            # The numbers close to a number are an interval that grows with it: if any pairing is
            # valid, the sorted one is.
            mine = sorted(ours, key=lambda one: float.fromhex(self._left.node(one).value or ""))
            yours = sorted(theirs, key=lambda one: float.fromhex(self._right.node(one).value or ""))
            return list(zip(mine, yours, strict=True))
        self._guessed = self._guessed or any(kind.mutable for kind in kinds)
        return (
            self._match_by_trials(ours, theirs)
            if len(ours) <= _MAX_ALIKE_MEMBERS and self._nested <= _MAX_NESTED_TRIALS
            else None
        )

    def _match_by_trials(self, ours: list[int], theirs: list[int]) -> list[tuple[int, int]] | None:
        """Find a perfect matching by augmenting paths; None if there is none."""
        options = {
            one: [other for other in theirs if self._may_be_equal(one, other)] for one in ours
        }
        owner: dict[int, int] = {}

        def place(one: int, tried: set[int]) -> bool:
            for other in options[one]:
                if other not in tried:
                    tried.add(other)
                    if other not in owner or place(owner[other], tried):
                        owner[other] = one
                        return True
            return False

        return (
            [(one, other) for other, one in owner.items()]
            if all(place(one, set()) for one in ours)
            else None
        )

    def _may_be_equal(self, left: int, right: int) -> bool:
        # Copying the partners found so far has its cost too.
        self._trials[0] -= 1 + len(self._right_of) // 16
        if self._trials[0] < 0:
            return False
        trial = GraphMatch(
            self._left, self._right, self._rules, nested=self._nested + 1, trials=self._trials
        )
        trial._right_of.update(self._right_of)
        trial._left_of.update(self._left_of)
        return not isinstance(trial.run(left, right), ValueDifference)


def _doubt_by_digest(one: SnapshotNode, other: SnapshotNode) -> str | None:
    """Return why values too large to be recorded may differ.

    Empty if they are the same, None if more than the digests is to be compared.
    """
    if one.kind in _WHOLE_DIGEST_KINDS or other.kind in _WHOLE_DIGEST_KINDS:
        return "" if one == other else f"{TOO_LARGE}, and its digests differ"
    one_sided = (one.kind == "sliced") != (other.kind == "sliced")
    same_length = one_sided and _length(one) == _length(other)
    return f"{TOO_LARGE}, and one side has it as it is" if same_length else None


def _length(node: SnapshotNode) -> int:
    return (
        Digests.of(node).count
        if node.kind == "sliced"
        else len(node.items) or len(node.value or "")
    )


# --- paths


def path_text(side: GraphSide, path: Path) -> str:
    """Return a path as text, such as `$.items[2]["price"]`."""
    steps: list[str] = []
    while path is not None:
        path, (kind, what) = path
        steps.append(_step(side, kind, what))
    return "$" + "".join(reversed(steps))


_PLAIN_STEPS = {"attribute": ".{}", "place": ".<key {}>", "item": "[{}]", "other": "{{…}}"}


def _step(side: GraphSide, kind: str, what: int | str) -> str:
    if kind in _PLAIN_STEPS:
        return _PLAIN_STEPS[kind].format(what)
    node = side.snapshot.nodes[int(what)]
    text = json.dumps(node.value) if node.kind == "str" else show(side.snapshot, int(what), 40)
    return f"[{text}]" if kind == "key" else f"{{{text}}}"

"""Two portraits side by side: the first place where they differ, else the first that can't be compared, else nothing.

The walk keeps its own stack. Pairs of nodes that were seen are taken as the same from then on, so
that cycles end. If sharing counts, each node that can change has one partner on the other side, and
no other.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from abreast.jobs.candidates.rules import Rules, first_difference
from abreast.jobs.candidates.values.equivalence import GraphSide
from abreast.jobs.candidates.values.large import Contents, Digests
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot, show

Path: TypeAlias = "tuple[Path, tuple[str, int | str]] | None"
"""Where a node stands: its parent's path and a step, such as ("attribute", "name") or ("item", 3)."""

TOO_LARGE = "it is too large to be recorded"
"""How every doubt about what differs by its digest begins."""
_MOST_STEPS = 5_000_000
_MOST_ALIKE = 64  # members of a set that may be each other, and have to be tried one by one
_MOST_DOUBTS = 20  # places that are named
_MOST_NESTED = 12  # sets in sets that have to be tried one by one
_MOST_TRIED = 100_000  # all trials together: sets in sets multiply them
_ATOMS = frozenset(
    {"none", "bool", "int", "float", "str", "surrogates", "bytes"}
)  # each the same as its equal
_IN_ONE = frozenset({"rest", "whole"})  # of which there is one digest
_ANYTHING = frozenset({"too large", "abreast.jobs.candidates.values.object_layout.Beyond"})


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """Where the two differ, and why."""

    path: Path
    left: int | None
    right: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Where the two can't be compared, and why."""

    path: Path
    left: int | None
    right: int | None
    reason: str


Finding: TypeAlias = ValueDifference | Doubt
Unread: TypeAlias = tuple[int, int, int]
"""The node of each side, and the slice of it."""
Pair: TypeAlias = tuple[int, int, Path]


@dataclass(slots=True)
class _Trials:
    """How much a comparison, and all trials within it, may still try."""

    left: int = _MOST_TRIED


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
        trials: _Trials | None = None,
    ) -> None:
        """Nothing is bound yet. `contents` has the slices of both sides that were read again."""
        self._contents = contents
        self.unread: list[Unread] = []
        """Slices that differ by their digests, and are not among the contents."""
        self._left, self._right, self._rules = left, right, rules
        self._nested = nested
        self._trials = trials or _Trials()
        self._partner: dict[int, tuple[int, Path]] = {}
        self._partner_of: dict[int, tuple[int, Path]] = {}
        self._seen: set[tuple[int, int]] = set()
        self.doubts: list[Doubt] = []
        """The places that can't be compared, the first of them first."""
        self._guessed = False  # which of several alike is whose partner was a guess

    def run(self, left: int, right: int) -> Finding | None:
        """The first difference, else the first doubt."""
        waiting: list[Pair | ValueDifference] = [(left, right, None)]
        while waiting:
            task = waiting.pop()
            if isinstance(task, ValueDifference):
                return task
            if (task[0], task[1]) in self._seen:
                continue
            self._seen.add((task[0], task[1]))
            if len(self._seen) > _MOST_STEPS:
                return Doubt(task[2], task[0], task[1], "it would take too many steps")
            found = self._step(*task)
            self._trials.left -= self._nested > 0
            if self._trials.left < 0:  # what was found by trying is not to be trusted
                return Doubt(
                    task[2],
                    task[0],
                    task[1],
                    "members of sets could belong together in too many ways",
                )
            if isinstance(found, ValueDifference):
                return found
            waiting.extend(reversed(found))
        return self.doubts[0] if self.doubts else None

    def _step(
        self, left: int, right: int, path: Path
    ) -> ValueDifference | list[Pair | ValueDifference]:
        """What is wrong with two nodes by themselves.

        Else their parts, which are still to be compared.
        """
        if self._is_equal_atom(left, right):
            return []
        one, other = self._left.node(left), self._right.node(right)
        if one.kind == "unknown" or other.kind == "unknown":
            return self._unknown(left, right, path)
        if (doubt := _by_digest(one, other)) is not None:
            if doubt:
                self._doubts(Doubt(path, left, right, doubt))
            return []
        reason = self._unlike(left, right)
        if reason:
            return ValueDifference(path, left, right, reason)
        if self._rules.sharing and (one.identity or other.identity):
            stranger = self._bind(left, right, path)
            if stranger is not None:
                if not self._guessed:
                    return stranger
                self._doubts(
                    Doubt(
                        path,
                        left,
                        right,
                        "members of a set are alike, and which is which can't be told",
                    )
                )
        content = self._content(left, right, path)
        return (
            content
            if isinstance(content, ValueDifference)
            else [*content, *self._state(left, right, path)]
        )

    def _is_equal_atom(self, left: int, right: int) -> bool:
        """The most frequent answer, without a step of its own."""
        one, other = self._left.portrait.nodes[left], self._right.portrait.nodes[right]
        return one.kind in _ATOMS and one == other and not one.attributes and not one.identity

    def _unknown(
        self, left: int, right: int, path: Path
    ) -> ValueDifference | list[Pair | ValueDifference]:
        one, other = self._left.node(left), self._right.node(right)
        if one.type != other.type and not {one.type, other.type} & _ANYTHING:
            return ValueDifference(
                path, left, right, f"it is a {one.type}, and became a {other.type}"
            )
        reason = next(node.value for node in (one, other) if node.kind == "unknown")
        self._doubts(Doubt(path, left, right, reason or ""))
        return []

    def _doubts(self, doubt: Doubt) -> None:
        if len(self.doubts) < _MOST_DOUBTS:
            self.doubts.append(doubt)

    def _unlike(self, left: int, right: int) -> str | None:
        """Why two nodes can't be the same, whatever their parts."""
        one, other = self._left.node(left), self._right.node(right)
        if one.type != other.type:
            return f"it is a {one.type}, and became a {other.type}"
        if one.kind.partition(":")[0] != other.kind.partition(":")[0]:
            sizes = "sliced" in (one.kind, other.kind)
            return (
                "it is of another size"
                if sizes
                else f"it is a {one.type}, and became a {other.type}"
            )
        mine, yours = self._left.portrait.classes.get(left), self._right.portrait.classes.get(right)
        is_local = one.items if one.kind == "class" else "<class>" in one.names
        live = mine is not None and yours is not None
        if live and mine is not yours and not is_local and self._rules.class_identity:
            return f"there are two classes of that name, {one.value if one.kind == 'class' else one.type}"
        if one.kind == "float":
            close = self._rules.same_float(
                float.fromhex(one.value or ""), float.fromhex(other.value or "")
            )
            return None if close else "the numbers differ"
        if one.kind.startswith("block:") or one.kind == "sliced":
            return None  # its dtype or typecode is compared first, then its content
        return None if one.value == other.value else "the values differ"

    def _bind(self, left: int, right: int, path: Path) -> ValueDifference | None:
        """Make two nodes partners; what is wrong if either has another one."""
        mine, yours = self._partner.get(left), self._partner_of.get(right)
        if mine is None and yours is None:
            self._partner[left] = (right, path)
            self._partner_of[right] = (left, path)
        elif mine is None or mine[0] != right:
            who, whom = ("original", mine) if mine else ("candidate", yours)
            place = written(self._left, whom[1] if whom else None)
            return ValueDifference(
                path, left, right, f"in the {who} alone it is the same object as {place}"
            )
        return None

    # --- parts

    def _state(self, left: int, right: int, path: Path) -> list[Pair | ValueDifference]:
        one, other = self._left.node(left), self._right.node(right)
        if not one.names and not other.names:
            return []
        mine = dict(zip(one.names, one.attributes, strict=True))
        yours = dict(zip(other.names, other.attributes, strict=True))
        found: list[Pair | ValueDifference] = []
        for name in [*mine, *(name for name in yours if name not in mine)]:
            at: Path = (path, ("attribute", name))
            if name in mine and name in yours:
                found.append((mine[name], yours[name], at))
            else:
                reason = f"only the {'original' if name in mine else 'candidate'} has it"
                found.append(ValueDifference(at, mine.get(name), yours.get(name), reason))
        return found

    def _content(
        self, left: int, right: int, path: Path
    ) -> ValueDifference | list[Pair | ValueDifference]:
        one, other = self._left.node(left), self._right.node(right)
        if one.kind.startswith("block:"):
            return self._block(left, right, path)
        if one.kind == "sliced":
            return [*self._state(left, right, path), *self._slices(left, right, path)]
        if one.kind == "set":
            return self._members(one.items, other.items, path)
        if one.kind == "map":
            return self._entries(left, right, path)
        found: list[Pair | ValueDifference] = [
            (mine, yours, (path, ("item", at)))
            for at, (mine, yours) in enumerate(zip(one.items, other.items, strict=False))
            if not self._is_equal_atom(mine, yours)
        ]
        return found + self._rest(one.items, other.items, path)

    def _rest(
        self, mine: Sequence[int], yours: Sequence[int], path: Path
    ) -> list[Pair | ValueDifference]:
        """What the longer of two sequences has more."""
        at = min(len(mine), len(yours))
        if len(mine) == len(yours):
            return []
        first = (mine[at] if at < len(mine) else None, yours[at] if at < len(yours) else None)
        return [
            ValueDifference((path, ("item", at)), *first, f"{len(mine)} items became {len(yours)}")
        ]

    def _block(self, left: int, right: int, path: Path) -> list[Pair | ValueDifference]:
        """Numbers in a row; their format and shape come first, which are attributes."""
        one, other = self._left.node(left), self._right.node(right)
        found = self._state(left, right, path)
        if one.kind != other.kind:
            return [*found, ValueDifference(path, left, right, "the numbers are of another format")]
        at = first_difference(self._rules, one, other)
        if at is not None:
            found.append(
                ValueDifference((path, ("item", at)), left, right, f"element {at} differs")
            )
        return found

    def _slices(self, left: int, right: int, path: Path) -> list[Pair | ValueDifference]:
        """What is too large to be recorded: the same if all digests are.

        What differs is compared slice by slice.
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
                self._doubts(Doubt(path, left, right, f"{TOO_LARGE}, and was not the same again"))
            elif (reason := self._slice(mine, yours)) is not None:
                here: Path = (path, ("item", at * one.step))
                if one.kind != "map" or one.mark or self._rules.dict_order:
                    return [
                        ValueDifference(
                            here, left, right, f"in the {one.step} from here on, {reason}"
                        )
                    ]
                self._doubts(
                    Doubt(here, left, right, f"{TOO_LARGE}, and its keys may be elsewhere")
                )
        if unread:
            some = f"{len(unread)} of its {len(one.slices)} slices differ by their digests"
            self._doubts(Doubt(path, left, right, f"{TOO_LARGE}, and {some}"))
            self.unread += unread
        return []

    def _slice(self, mine: ValueSnapshot, yours: ValueSnapshot) -> str | None:
        """How two slices differ by the ordinary rules; None if they don't."""
        table: dict[object, int] = {}
        left, right = GraphSide(mine, self._rules, table), GraphSide(yours, self._rules, table)
        found = GraphMatch(left, right, self._rules).run(0, 0)
        if found is None:
            return None
        sides = [
            show(side.portrait, at)
            for side, at in ((left, found.left), (right, found.right))
            if at is not None
        ]
        return f"at {written(left, found.path)}: {found.reason} ({', then '.join(sides)})"

    def _entries(
        self, left: int, right: int, path: Path
    ) -> ValueDifference | list[Pair | ValueDifference]:
        one, other = self._left.node(left), self._right.node(right)
        if not self._rules.dict_order and one.value != "ordered":
            return self._unordered(one, other, path)
        keys, others = one.items[::2], other.items[::2]
        wrong = self._keys(keys, others)
        found: list[Pair | ValueDifference] = []
        for at, (mine, yours) in enumerate(zip(keys, others, strict=False)):
            step: Path = (path, ("key", mine))
            if at == wrong:
                moved = Counter(map(self._number_left, keys)) == Counter(
                    map(self._number_right, others)
                )
                reason = "the same keys come in another order" if moved else "the keys differ"
                return [*found, ValueDifference((path, ("item", at)), mine, yours, reason)]
            found += [
                (mine, yours, (path, ("place", at))),
                (one.items[2 * at + 1], other.items[2 * at + 1], step),
            ]
        return found + self._rest(keys, others, path)

    def _keys(self, keys: Sequence[int], others: Sequence[int]) -> int | None:
        """The first place where two keys can't be each other."""
        pairs = zip(keys, others, strict=False)
        return next(
            (
                at
                for at, (mine, yours) in enumerate(pairs)
                if self._number_left(mine) != self._number_right(yours)
                and not self._is_murky(mine, yours)
            ),
            None,
        )

    def _number_left(self, index: int) -> int:
        return self._left.likeness(index).number

    def _number_right(self, index: int) -> int:
        return self._right.likeness(index).number

    def _is_murky(self, left: int, right: int) -> bool:
        return self._left.likeness(left).murky or self._right.likeness(right).murky

    def _unordered(
        self, one: SnapshotNode, other: SnapshotNode, path: Path
    ) -> ValueDifference | list[Pair | ValueDifference]:
        pairs = self._members(one.items[::2], other.items[::2], path)
        if isinstance(pairs, ValueDifference):
            return pairs
        values = dict(zip(one.items[::2], one.items[1::2], strict=True))
        others = dict(zip(other.items[::2], other.items[1::2], strict=True))
        keyed = [pair for pair in pairs if not isinstance(pair, ValueDifference)]
        return pairs + [
            (values[mine], others[yours], (path, ("key", mine))) for mine, yours, _ in keyed
        ]

    # --- sets

    def _members(
        self, mine: Sequence[int], yours: Sequence[int], path: Path
    ) -> ValueDifference | list[Pair | ValueDifference]:
        """The members of two sets, paired.

        Those of which only the digest of all the rest is known stand for one.
        """
        mine, yours = (
            list(dict.fromkeys(one)) if any(side.node(at).kind in _IN_ONE for at in one) else one
            for side, one in ((self._left, mine), (self._right, yours))
        )
        groups: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for index in mine:
            groups[self._left.likeness(index).number][0].append(index)
        for index in yours:
            groups[self._right.likeness(index).number][1].append(index)
        murky = any(self._left.likeness(one).murky for one in mine) or any(
            self._right.likeness(one).murky for one in yours
        )
        pairs: list[tuple[int, int]] = []
        for ours, theirs in groups.values():
            matched = self._matched(ours, theirs) if len(ours) == len(theirs) else None
            if matched is None:
                return self._alone(ours, theirs, path, murky=murky)
            pairs += matched
        order = {index: at for at, index in enumerate(mine)}
        return [
            (a, b, (path, ("member", a))) for a, b in sorted(pairs, key=lambda pair: order[pair[0]])
        ]

    def _alone(
        self, ours: list[int], theirs: list[int], path: Path, *, murky: bool
    ) -> ValueDifference | list[Pair | ValueDifference]:
        left = ours[0] if len(ours) >= len(theirs) else None
        right = theirs[0] if len(theirs) >= len(ours) else None
        if murky or len(ours) == len(theirs) > _MOST_ALIKE or self._nested > _MOST_NESTED:
            self._doubts(Doubt(path, left, right, "which members belong together can't be told"))
            return []
        step: tuple[str, int | str] = (
            ("member", left) if left is not None else ("other", right or 0)
        )
        who = (
            "a member has no equal" if len(ours) == len(theirs) else "only one side has this member"
        )
        return ValueDifference((path, step), left, right, who)

    def _matched(self, ours: list[int], theirs: list[int]) -> list[tuple[int, int]] | None:
        """Members that may be each other, paired so that each pair is the same.

        None if there is no such way.
        """
        kinds = [self._left.likeness(one) for one in ours]
        if len(ours) == 1 or not any(kind.coarse or kind.shared for kind in kinds):
            return list(zip(ours, theirs, strict=True))
        if all(self._left.node(one).kind == "float" for one in ours):
            # What is close to a number is an interval that grows with it: if any pairing holds, the
            # sorted one does.
            mine = sorted(ours, key=lambda one: float.fromhex(self._left.node(one).value or ""))
            yours = sorted(theirs, key=lambda one: float.fromhex(self._right.node(one).value or ""))
            return list(zip(mine, yours, strict=True))
        self._guessed = self._guessed or any(kind.shared for kind in kinds)
        return (
            self._tried(ours, theirs)
            if len(ours) <= _MOST_ALIKE and self._nested <= _MOST_NESTED
            else None
        )

    def _tried(self, ours: list[int], theirs: list[int]) -> list[tuple[int, int]] | None:
        """A perfect matching by augmenting paths."""
        fits = {one: [other for other in theirs if self._fits(one, other)] for one in ours}
        owner: dict[int, int] = {}

        def place(one: int, tried: set[int]) -> bool:
            for other in fits[one]:
                if other not in tried:
                    tried.add(other)
                    if other not in owner or place(owner[other], tried):
                        owner[other] = one
                        return True
            return False

        if not all(place(one, set()) for one in ours):
            return None
        return [(one, other) for other, one in owner.items()]

    def _fits(self, left: int, right: int) -> bool:
        self._trials.left -= 1 + len(self._partner) // 16  # what is known so far is copied
        if self._trials.left < 0:
            return False
        trial = GraphMatch(
            self._left, self._right, self._rules, nested=self._nested + 1, trials=self._trials
        )
        trial._partner.update(self._partner)
        trial._partner_of.update(self._partner_of)
        return not isinstance(trial.run(left, right), ValueDifference)


def _by_digest(one: SnapshotNode, other: SnapshotNode) -> str | None:
    """Why what is too large to be recorded may differ.

    Empty if it is the same, None if there is more to look at.
    """
    if one.kind in _IN_ONE or other.kind in _IN_ONE:
        return "" if one == other else f"{TOO_LARGE}, and its digests differ"
    if (one.kind == "sliced") != (other.kind == "sliced") and _length(one) == _length(other):
        return f"{TOO_LARGE}, and one side has it as it is"
    return None


def _length(node: SnapshotNode) -> int:
    """How long a row or text is, sliced or not."""
    return (
        Digests.of(node).count
        if node.kind == "sliced"
        else len(node.items) or len(node.value or "")
    )


# --- paths


def written(side: GraphSide, path: Path) -> str:
    """A path as people write it: `$.items[2]["price"]`."""
    steps: list[str] = []
    while path is not None:
        path, (kind, what) = path
        steps.append(_step(side, kind, what))
    return "$" + "".join(reversed(steps))


def _step(side: GraphSide, kind: str, what: int | str) -> str:
    if kind == "attribute":
        return f".{what}"
    if kind == "place":
        return f".<key {what}>"
    if kind == "item":
        return f"[{what}]"
    if kind == "other":
        return "{…}"
    node = side.portrait.nodes[int(what)]
    text = json.dumps(node.value) if node.kind == "str" else show(side.portrait, int(what), 40)
    return f"[{text}]" if kind == "key" else f"{{{text}}}"

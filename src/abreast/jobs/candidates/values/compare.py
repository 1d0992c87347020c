"""Compares two values part by part, without calling their methods.

    >>> verdict = compare({"items": [1, {"price": 2.0}]}, {"items": [1, {"price": 2.5}]})
    >>> verdict.outcome, verdict.path, verdict.original, verdict.candidate
    ('different', '$["items"][1]["price"]', '2.0', '2.5')

A snapshot is taken of both values first (`take_snapshot`), which calls none of their methods, and
the snapshots are compared, which are only text. So an `__eq__` that returns a wrong answer is never
called, and values from two processes are compared by the same code as two in one.

What counts (`rules.STRICT`): the type; every member and every attribute, slots included; the order
of a dict; the sign of a zero; which mutable parts are one object; an exception's cause, context and
notes. NaN equals NaN. 1, 1.0 and True differ, as keys too. Floats must be equal, or, with a
tolerance, close; the rule is the same for all floats. `LOOSE` relaxes by name.

A lock is compared by whether it is held, an open file by its name, mode and position, a generator
of random numbers by its state. What can't be compared is never the same: sockets, threads,
coroutines, frames, types of extensions whose state can't be read, iterators that don't end, values
of more than a million parts. All else is compared nevertheless, and a definite difference anywhere
is a difference; otherwise the verdict is `cannot_compare`, with the places and the reasons.
Iterators are consumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from abreast.jobs.candidates.rules import LOOSE, STRICT, Rules
from abreast.jobs.candidates.values.equivalence import GraphSide
from abreast.jobs.candidates.values.graph_match import Doubt, Finding, GraphMatch, Unread, path_text
from abreast.jobs.candidates.values.large import Contents
from abreast.jobs.candidates.values.snapshot import ValueSnapshot, show
from abreast.jobs.candidates.values.take_snapshot import MAX_NODES, MAX_YIELDED, take_snapshot

_DOUBTFUL_KINDS = frozenset({"unknown", "set"})
Outcome: TypeAlias = Literal["same", "different", "cannot_compare"]


@dataclass(frozen=True, slots=True)
class ValueVerdict:
    """The result of a comparison: same, different, or cannot compare.

    Unless it is the same: the first such place, both values there shortened, and the reason.

    Attributes:
        others: With `cannot_compare`: the other places that can't be compared.
        unread: Slices too large to be recorded whose digests differ, and which could be read again.
    """

    outcome: Outcome
    path: str = ""
    original: str = ""
    candidate: str = ""
    reason: str = ""
    others: tuple[ValueVerdict, ...] = ()
    unread: tuple[Unread, ...] = ()

    @property
    def places(self) -> tuple[ValueVerdict, ...]:
        """Every place that can't be compared, each as a verdict; the first is this one."""
        return (replace(self, others=()), *self.others)

    def __bool__(self) -> bool:
        raise TypeError("a verdict has three outcomes: look at its `outcome`")

    def __str__(self) -> str:
        if self.outcome == "same":
            return "same"
        sides = f"original {self.original}, candidate {self.candidate}"
        return f"{self.outcome} at {self.path}: {self.reason} ({sides})"


def compare(
    original: object, candidate: object, *, rules: Rules = STRICT, bound: int = MAX_YIELDED
) -> ValueVerdict:
    """Compare the candidate's value with the original's.

    No value makes it raise, and it calls none of their methods. Generators and iterators of both
    are consumed, the original's first, up to `bound` values each.
    """
    # One walk for both: an iterator that both hold is consumed once.
    both = take_snapshot((original, candidate), bound=bound, nodes=2 * MAX_NODES)
    left, right = both.nodes[0].items
    return compare_snapshots(both, both, rules=rules, at=(left, right))


def compare_snapshots(
    original: ValueSnapshot,
    candidate: ValueSnapshot,
    *,
    rules: Rules = STRICT,
    contents: tuple[Contents, Contents] = ({}, {}),
    at: tuple[int, int] = (0, 0),
) -> ValueVerdict:
    """Compare two snapshots, which may be from other processes.

    `contents` has the slices that were read again, of both, where a value is too large to be
    recorded. `at` are the nodes where the comparison begins.
    """
    if at == (0, 0) and _is_one_graph(original, candidate):
        return ValueVerdict("same")
    table: dict[object, int] = {}
    mine, yours = GraphSide(original, rules, table), GraphSide(candidate, rules, table)
    match = GraphMatch(mine, yours, rules, contents=contents)
    if (found := match.run(*at)) is None:
        return ValueVerdict("same")
    if not isinstance(found, Doubt):
        return _verdict("different", mine, yours, found)
    others = [
        _verdict("cannot_compare", mine, yours, one) for one in match.doubts if one is not found
    ]
    return replace(
        _verdict("cannot_compare", mine, yours, found),
        others=tuple(others),
        unread=tuple(match.unread),
    )


def _is_one_graph(original: ValueSnapshot, candidate: ValueSnapshot) -> bool:
    """Whether two snapshots are equal node by node, and have nothing that may leave a doubt.

    Then each node is the partner of the one with its index, by any rules. Members of sets are left
    to the match: which belong together may be in doubt. Most calls have equal snapshots; to match
    them took 2 of 8 s of this process in an `optimize` of six candidates.
    """
    return (
        original.nodes == candidate.nodes
        and not original.classes
        and not candidate.classes
        and not any(node.kind in _DOUBTFUL_KINDS for node in original.nodes)
    )


def _verdict(outcome: Outcome, mine: GraphSide, yours: GraphSide, found: Finding) -> ValueVerdict:
    left, right = (
        "nothing" if at is None else show(side.snapshot, at)
        for side, at in ((mine, found.left), (yours, found.right))
    )
    return ValueVerdict(outcome, path_text(mine, found.path), left, right, found.reason)


__all__ = ["LOOSE", "STRICT", "Outcome", "Rules", "ValueVerdict", "compare", "compare_snapshots"]

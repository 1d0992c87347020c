"""Whether two values are the same, part by part: the judge of behaviour, which neither can talk to.

    >>> verdict = compare({"items": [1, {"price": 2.0}]}, {"items": [1, {"price": 2.5}]})
    >>> verdict.outcome, verdict.path, verdict.original, verdict.candidate
    ('different', '$["items"][1]["price"]', '2.0', '2.5')

Both values are portrayed first (`take_snapshot`), which calls none of their methods, and the
portraits are compared, which are only text. So a lying `__eq__` is never asked, and values from two
processes are compared by the same code as two in one.

What counts (`rules.STRICT`): the type; every member and every attribute, slots included; the order
of a dict; the sign of a zero; which parts that can change are one object; an exception's cause,
context and notes. NaN is NaN. 1, 1.0 and True differ, as keys too. Floats are equal, or, with a
tolerance, close: everywhere or nowhere. `LOOSE` relaxes by name.

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
from abreast.jobs.candidates.values.graph_match import Doubt, Finding, GraphMatch, Unread, written
from abreast.jobs.candidates.values.large import Contents
from abreast.jobs.candidates.values.snapshot import ValueSnapshot, show
from abreast.jobs.candidates.values.take_snapshot import MOST_NODES, MOST_YIELDED, take_snapshot

Outcome: TypeAlias = Literal["same", "different", "cannot_compare"]


@dataclass(frozen=True, slots=True)
class ValueVerdict:
    """The same, different, or beyond comparison.

    And if not the same, where first, both sides shortened, and why.
    """

    outcome: Outcome
    path: str = ""
    original: str = ""
    candidate: str = ""
    reason: str = ""
    others: tuple[ValueVerdict, ...] = ()
    """If it is beyond comparison: the other places that are."""
    unread: tuple[Unread, ...] = ()
    """If it is too large to be recorded: what differs by its digests, and could be read again."""

    @property
    def places(self) -> tuple[ValueVerdict, ...]:
        """Every place that can't be compared, each as a verdict of its own.

        Itself if there is no more than one.
        """
        return (replace(self, others=()), *self.others)

    def __bool__(self) -> bool:
        """Refused: what is beyond comparison is neither true nor false."""
        raise TypeError("a verdict has three outcomes: look at its `outcome`")

    def __str__(self) -> str:
        if self.outcome == "same":
            return "same"
        return f"{self.outcome} at {self.path}: {self.reason} (original {self.original}, candidate {self.candidate})"


def compare(
    original: object, candidate: object, *, rules: Rules = STRICT, bound: int = MOST_YIELDED
) -> ValueVerdict:
    """Whether the candidate's value is the original's.

    Never raises for what the values are, nor calls their methods.

    Generators and iterators of both are consumed, the original's first, up to `bound` values each.
    """
    # One walk for both: an iterator that both hold is consumed once.
    both = take_snapshot((original, candidate), bound=bound, nodes=2 * MOST_NODES)
    left, right = both.nodes[0].items
    return _judged(both, left, both, right, rules)


def compare_portraits(
    original: ValueSnapshot,
    candidate: ValueSnapshot,
    *,
    rules: Rules = STRICT,
    contents: tuple[Contents, Contents] = ({}, {}),
) -> ValueVerdict:
    """The same for values that were portrayed already, in this process or in others.

    `contents` has the slices of both that were read again, of what is too large to be recorded.
    """
    return _judged(original, 0, candidate, 0, rules, contents=contents)


def _judged(
    original: ValueSnapshot,
    left: int,
    candidate: ValueSnapshot,
    right: int,
    rules: Rules,
    *,
    contents: tuple[Contents, Contents] = ({}, {}),
) -> ValueVerdict:
    table: dict[object, int] = {}
    mine, yours = GraphSide(original, rules, table), GraphSide(candidate, rules, table)
    engine = GraphMatch(mine, yours, rules, contents=contents)
    found = engine.run(left, right)
    if found is None:
        return ValueVerdict("same")
    if not isinstance(found, Doubt):
        return _verdict("different", mine, yours, found)
    others = [
        _verdict("cannot_compare", mine, yours, one) for one in engine.doubts if one is not found
    ]
    first = _verdict("cannot_compare", mine, yours, found)
    return replace(first, others=tuple(others), unread=tuple(engine.unread))


def _verdict(outcome: Outcome, mine: GraphSide, yours: GraphSide, found: Finding) -> ValueVerdict:
    return ValueVerdict(
        outcome,
        written(mine, found.path),
        _side(mine, found.left),
        _side(yours, found.right),
        found.reason,
    )


def _side(side: GraphSide, index: int | None) -> str:
    return "nothing" if index is None else show(side.portrait, index)


__all__ = ["LOOSE", "STRICT", "Outcome", "Rules", "ValueVerdict", "compare", "compare_portraits"]

"""Scores a plan before it is run: cut imports, hubs, critical path, bounds of the speedup.

    report = score(plan, imports)
    report.speedup[9].parallel            # the largest possible speedup of ten at once over one

Work is measured in tokens, at least one for each leaf: the time of a subplan is not known before it
has run, but the amount it has to read is. The bounds are upper bounds: no schedule exceeds them,
and none is guaranteed to reach them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from abreast.jobs.plan.decompose.graph import cycles
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.spec import Plan

WIDTHS: Final = tuple(range(1, 51))
"""The widths for which the bounds are given."""
HUB_LEAVES: Final = 3
"""A hub is imported by files of at least so many other leaves."""


@dataclass(frozen=True, slots=True)
class Hub:
    """A file that many leaves import: its owner, and how many files of how many other leaves."""

    path: str
    leaf: str
    importers: int
    leaves: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two leaves that may break each other: the number of imports between them, either way."""

    first: str
    second: str
    imports: int


@dataclass(frozen=True, slots=True)
class ScoreBound:
    """The largest speedup with `max_parallel` at once, in any order and by dependency."""

    max_parallel: int
    parallel: float
    ordered: float


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of a plan; tuples are ordered by importance, then by name."""

    leaves: int
    cut_ratio: float
    """The share of imports within the repository that lead from one leaf to another."""
    hubs: tuple[Hub, ...]
    conflict_pairs: tuple[Pair, ...]
    tokens: dict[str, int]
    """The tokens of each leaf, in the order of the plan."""
    over_budget: tuple[str, ...]
    critical_path: tuple[str, ...]
    """The heaviest chain of leaves that each need the one before.

    The leaves of a cycle run in parallel, so its heaviest one stands for it.
    """
    critical_tokens: int
    cycles: tuple[tuple[str, ...], ...]
    """Leaves that need each other in a cycle; ordered by dependency, they run as one group."""
    speedup: tuple[ScoreBound, ...]


def score(
    plan: Plan,
    imports: Imports | None = None,
    *,
    needs: Mapping[str, Sequence[str]] | None = None,
    widths: Iterable[int] = WIDTHS,
) -> Score:
    """Score a plan, with the imports that it was made from.

    `needs` has the leaves that each waits for, if that is written; else imports tell it.
    """
    owner = {path: leaf.id for leaf in plan.leaves for path in leaf.files}
    edges = [
        (path, to)
        for path, targets in (imports or Imports()).edges.items()
        if path in owner
        for to in targets
        if to in owner
    ]
    between = Counter((owner[path], owner[to]) for path, to in edges)
    cut = sum(count for (one, two), count in between.items() if one != two)
    weights = {leaf.id: max(1, leaf.tokens) for leaf in plan.leaves}
    circles, path = _critical_path(weights, _needs(plan, between) if needs is None else needs)
    total, heaviest = sum(weights.values()), max(weights.values())
    longest = sum(weights[leaf] for leaf in path)
    return Score(
        leaves=len(weights),
        cut_ratio=cut / len(edges) if edges else 0.0,
        hubs=_hubs(edges, owner),
        conflict_pairs=_pairs(between),
        tokens={leaf.id: leaf.tokens for leaf in plan.leaves},
        over_budget=tuple(leaf.id for leaf in plan.leaves if leaf.over_budget),
        critical_path=path,
        critical_tokens=sum(plan.node(leaf).tokens for leaf in path),
        cycles=circles,
        speedup=tuple(
            ScoreBound(
                width, total / max(total / width, heaviest), total / max(total / width, longest)
            )
            for width in widths
        ),
    )


def dependencies(plan: Plan, imports: Imports | None = None) -> dict[str, tuple[str, ...]]:
    """For each leaf in the order of the plan, the leaves whose files its own import."""
    owner = {path: leaf.id for leaf in plan.leaves for path in leaf.files}
    return _needs(
        plan,
        (
            (owner[path], owner[to])
            for path, targets in (imports or Imports()).edges.items()
            if path in owner
            for to in targets
            if to in owner
        ),
    )


def _needs(plan: Plan, between: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """For each leaf the others that it needs, of pairs of a leaf and one that it imports."""
    needs: dict[str, set[str]] = {leaf.id: set() for leaf in plan.leaves}
    for leaf, other in between:
        needs[leaf].add(other)
    return {leaf: tuple(sorted(found - {leaf})) for leaf, found in needs.items()}


def in_groups(needs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The needs of each leaf with each cycle of leaves made one group, so that no cycle is left.

    Leaves of a group don't wait for each other. Each waits for all that the group needs, and what
    needs one of them waits for all of them.
    """
    leaves, groups, graph = _grouped(needs)
    group_of = {place: group for group in groups for place in group}
    found: dict[str, tuple[str, ...]] = {}
    for place, leaf in enumerate(leaves):
        own = group_of[place]
        needed = {other for one in own for to in graph[one] for other in group_of[to]}
        found[leaf] = tuple(sorted(leaves[other] for other in needed.difference(own)))
    return found


def _grouped(
    needs: Mapping[str, Sequence[str]],
) -> tuple[list[str], list[list[int]], list[list[int]]]:
    """The leaves, their groups by number, and the needs of each number.

    Groups that others need come first; a leaf in no cycle is a group of its own.
    """
    leaves = list(needs)
    number = {leaf: place for place, leaf in enumerate(leaves)}
    graph = [sorted(number[to] for to in needs[leaf]) for leaf in leaves]
    return leaves, cycles(graph), graph


def _hubs(edges: Sequence[tuple[str, str]], owner: dict[str, str]) -> tuple[Hub, ...]:
    importers: dict[str, list[str]] = defaultdict(list)
    for path, to in edges:
        importers[to].append(owner[path])
    hubs = [
        Hub(to, owner[to], len(leaves), len(others))
        for to, leaves in importers.items()
        if len(leaves) >= HUB_LEAVES and len(others := {*leaves} - {owner[to]}) >= HUB_LEAVES
    ]
    return tuple(sorted(hubs, key=lambda hub: (-hub.leaves, -hub.importers, hub.path)))


def _pairs(between: Mapping[tuple[str, str], int]) -> tuple[Pair, ...]:
    counted: Counter[tuple[str, str]] = Counter()
    for (one, two), count in between.items():
        if one != two:
            counted[min(one, two), max(one, two)] += count
    pairs = [Pair(first, second, count) for (first, second), count in counted.items()]
    return tuple(sorted(pairs, key=lambda pair: (-pair.imports, pair.first, pair.second)))


def _critical_path(
    weights: dict[str, int], needs: Mapping[str, Sequence[str]]
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The cycles of leaves, and the heaviest path, in which only a cycle's heaviest leaf counts."""
    leaves, groups, graph = _grouped(needs)  # needed ones first, so that one pass is enough
    group_of = {place: which for which, group in enumerate(groups) for place in group}
    heaviest = [max(group, key=lambda place: (weights[leaves[place]], -place)) for group in groups]
    reach: list[int] = []
    before: list[int | None] = []
    for which, group in enumerate(groups):
        needed = sorted({group_of[to] for place in group for to in graph[place]} - {which})
        best = max(needed, key=lambda other: (reach[other], -other), default=None)
        reach.append(weights[leaves[heaviest[which]]] + (0 if best is None else reach[best]))
        before.append(best)
    at: int | None = max(range(len(groups)), key=lambda which: (reach[which], -which))
    path: list[str] = []
    while at is not None:
        path = [leaves[heaviest[at]], *path]
        at = before[at]
    circles = tuple(tuple(leaves[place] for place in group) for group in groups if len(group) > 1)
    return circles, tuple(path)

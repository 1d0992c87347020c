"""What a plan is worth, before anything is spent on it.

    report = score(plan, imports)
    report.speedup[9].parallel            # the most that ten at once can gain over one

Work is counted in tokens, at least one for each leaf: how long a subplan takes is not known before
it ran, but what it has to read is. Bounds are bounds: no schedule beats them, and none is promised
to reach them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from abreast.jobs.plan.decompose.graph import cycles
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.spec import Plan

WIDTHS: Final = tuple(range(1, 51))
"""The numbers of subplans at once for which the bounds are given."""
HUB_LEAVES: Final = 3
"""Other leaves whose files import a hub, at least."""


@dataclass(frozen=True, slots=True)
class Hub:
    """A file that leaves depend on: how many files import it, of how many other leaves, and who owns it."""

    path: str
    leaf: str
    importers: int
    leaves: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two leaves that may break each other: imports that lead from one to the other, either way."""

    first: str
    second: str
    imports: int


@dataclass(frozen=True, slots=True)
class ScoreBound:
    """How many times faster than one by one `max_parallel` at once can be, in any order, and by dependency."""

    max_parallel: int
    parallel: float
    ordered: float


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of a plan; tuples are in the order of what matters most, then of names."""

    leaves: int
    cut_ratio: float
    """Of all imports within the repository, the part that leads from one leaf to another."""
    hubs: tuple[Hub, ...]
    conflict_pairs: tuple[Pair, ...]
    tokens: dict[str, int]
    """Of each leaf, in the order of the plan."""
    over_budget: tuple[str, ...]
    critical_path: tuple[str, ...]
    """The heaviest chain of leaves that each need the one before.

    A circle runs side by side: its heaviest is named.
    """
    critical_tokens: int
    cycles: tuple[tuple[str, ...], ...]
    """Leaves that need each other in a circle: ordered by dependency, they run as one group."""
    speedup: tuple[ScoreBound, ...]


def score(plan: Plan, imports: Imports | None = None, *, widths: Iterable[int] = WIDTHS) -> Score:
    """The figures of a plan, with the imports that it was made from."""
    edges = [
        (path, to)
        for path, targets in (imports or Imports()).edges.items()
        for to in targets
        if plan.owner(path) is not None and plan.owner(to) is not None
    ]
    owner = {path: leaf.id for leaf in plan.leaves for path in leaf.files}
    cut = [(path, to) for path, to in edges if owner[path] != owner[to]]
    weights = {leaf.id: max(1, leaf.tokens) for leaf in plan.leaves}
    needs = dependencies(plan, imports)
    circles, path = _critical(weights, needs)
    total, heaviest = sum(weights.values()), max(weights.values())
    longest = sum(weights[leaf] for leaf in path)
    return Score(
        leaves=len(weights),
        cut_ratio=len(cut) / len(edges) if edges else 0.0,
        hubs=_hubs(cut, edges, owner),
        conflict_pairs=_pairs(cut, owner),
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
    needs: dict[str, set[str]] = {leaf.id: set() for leaf in plan.leaves}
    for path, targets in (imports or Imports()).edges.items():
        one = plan.owner(path)
        if one is not None:
            needs[one] |= {
                two for to in targets if (two := plan.owner(to)) is not None and two != one
            }
    return {leaf: tuple(sorted(found)) for leaf, found in needs.items()}


def in_groups(needs: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """What each leaf waits for if leaves that need each other in a circle are one group.

    There is no circle any more.

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
    """The leaves, their groups by number (needed ones first.

    One alone is a group), and what each number needs.
    """
    leaves = list(needs)
    number = {leaf: place for place, leaf in enumerate(leaves)}
    graph = [sorted(number[to] for to in needs[leaf]) for leaf in leaves]
    return leaves, cycles(graph), graph


def _hubs(
    cut: Sequence[tuple[str, str]], edges: Sequence[tuple[str, str]], owner: dict[str, str]
) -> tuple[Hub, ...]:
    importers = Counter(to for _, to in edges)
    leaves: dict[str, set[str]] = defaultdict(set)
    for path, to in cut:
        leaves[to].add(owner[path])
    hubs = [
        Hub(to, owner[to], importers[to], len(others))
        for to, others in leaves.items()
        if len(others) >= HUB_LEAVES
    ]
    return tuple(sorted(hubs, key=lambda hub: (-hub.leaves, -hub.importers, hub.path)))


def _pairs(cut: Sequence[tuple[str, str]], owner: dict[str, str]) -> tuple[Pair, ...]:
    counted = Counter(tuple(sorted((owner[path], owner[to]))) for path, to in cut)
    pairs = [Pair(first, second, count) for (first, second), count in counted.items()]
    return tuple(sorted(pairs, key=lambda pair: (-pair.imports, pair.first, pair.second)))


def _critical(
    weights: dict[str, int], needs: dict[str, tuple[str, ...]]
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The circles of leaves, and the heaviest path, in which of each circle the heaviest leaf counts."""
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

"""Graphs of numbers: cycles, connected components and communities, each the same for the same graph, always.

A graph is a list of sorted lists: the targets of node 0, of node 1, and so on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Graph: TypeAlias = Sequence[Sequence[int]]

_SWEEPS: Final = (
    20  # over the nodes of one level; the import graphs that were looked at settle in 3 to 7
)
_GAIN: Final = 1e-9  # below this a move gains nothing but rounding


def cycles(graph: Graph) -> list[list[int]]:
    """Strongly connected components, each sorted: a node in no cycle is one alone.

    Those imported come first.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    found: list[list[int]] = []
    for start in range(len(graph)):
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        waiting.add(start)
        work = [(start, iter(graph[start]))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    waiting.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in waiting:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    at = _last(stack, node)
                    found.append(sorted(stack[at:]))
                    waiting.difference_update(stack[at:])
                    del stack[at:]
    return found


def _last(stack: list[int], node: int) -> int:
    at = len(stack) - 1
    while stack[at] != node:
        at -= 1
    return at


def components(graph: Graph) -> list[list[int]]:
    """Nodes that hang together, whichever way the edges point: each component sorted, by its least node."""
    leads = list(range(len(graph)))

    def lead(node: int) -> int:
        while leads[node] != node:
            leads[node] = leads[leads[node]]
            node = leads[node]
        return node

    for node, targets in enumerate(graph):
        for target in targets:
            one, two = sorted((lead(node), lead(target)))
            leads[two] = one
    return gathered(lead(node) for node in range(len(graph)))


def gathered(labels: Iterable[int]) -> list[list[int]]:
    """The nodes of each label, by the least node of each."""
    groups: dict[int, list[int]] = defaultdict(list)
    for node, label in enumerate(labels):
        groups[label].append(node)
    return list(groups.values())


def communities(graph: Graph) -> list[list[int]]:
    """Groups with more edges inside than chance would give: modularity raised by moving nodes, then groups, while it
    rises. Nodes are visited in their order, and the lowest of equally good groups is taken."""  # noqa: D205, D209
    weights: list[dict[int, float]] = [defaultdict(float) for _ in graph]
    for node, targets in enumerate(graph):
        for target in targets:
            weights[node][target] += 1.0
            weights[target][node] += 1.0
    belongs = list(range(len(graph)))
    while True:
        labels = _settled(weights)
        groups = gathered(labels)
        if len(groups) == len(weights):
            return gathered(belongs)
        number = {node: place for place, group in enumerate(groups) for node in group}
        belongs = [number[group] for group in belongs]
        weights = _folded(weights, groups, number)


def _settled(weights: Sequence[dict[int, float]]) -> list[int]:
    """Each node in the neighbouring group where modularity gains most, until none moves.

    After the first sweep only nodes are visited that have a neighbour which moved: half the time,
    the same groups.
    """
    labels = list(range(len(weights)))
    degree = [
        sum(near.values()) for near in weights
    ]  # an edge within a folded group is in it twice
    total = list(degree)  # of the nodes of each label
    whole = sum(degree) or 1.0
    stirred: Iterable[int] = labels[:]
    for _ in range(_SWEEPS):
        moved: set[int] = set()
        for node in stirred:
            own, share = labels[node], degree[node] / whole
            total[own] -= degree[node]
            pull = {own: 0.0}
            for other, weight in weights[node].items():
                if other != node:
                    label = labels[other]
                    pull[label] = pull.get(label, 0.0) + weight
            best, most = own, pull[own] - total[own] * share + _GAIN
            for label, weight in pull.items():
                gain = weight - total[label] * share
                if gain > most or (gain == most and label < best != own):
                    best, most = label, gain
            labels[node] = best
            total[best] += degree[node]
            if best != own:
                moved.update(weights[node])
        stirred = sorted(moved)
        if not stirred:
            break
    return labels


def _folded(
    weights: Sequence[dict[int, float]], groups: Sequence[Sequence[int]], number: dict[int, int]
) -> list[dict[int, float]]:
    folded: list[dict[int, float]] = [defaultdict(float) for _ in groups]
    for place, group in enumerate(groups):
        for node in group:
            for other, weight in weights[node].items():
                folded[place][number[other]] += weight
    return folded

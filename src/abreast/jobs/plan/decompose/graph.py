"""Deterministic graph algorithms: cycles, connected components and communities.

A graph is a list of sorted lists: the targets of node 0, of node 1, and so on.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Graph: TypeAlias = Sequence[Sequence[int]]

# Sweeps over the nodes of one level at most; the import graphs that were measured need 3 to 7.
_MAX_SWEEPS: Final = 20
_MIN_GAIN: Final = 1e-9  # of a move; less is a rounding error


def cycles(graph: Graph) -> list[list[int]]:
    """Strongly connected components, each sorted; a node in no cycle is one alone.

    A component comes after those that it has edges to.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    found: list[list[int]] = []
    for start in range(len(graph)):
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        work = [(start, iter(graph[start]))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(graph[target])))
                    break
                low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    circle = [stack.pop()]
                    while circle[-1] != node:
                        circle.append(stack.pop())
                    found.append(sorted(circle))
                    # More than all others, so that no later node takes it for its own circle.
                    index.update(dict.fromkeys(circle, len(graph)))
    return found


def components(graph: Graph) -> list[list[int]]:
    """Weakly connected components, each sorted, ordered by their least node."""
    parents = list(range(len(graph)))

    def root(node: int) -> int:
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node

    for node, targets in enumerate(graph):
        for target in targets:
            one, two = sorted((root(node), root(target)))
            parents[two] = one
    return gathered(root(node) for node in range(len(graph)))


def gathered(labels: Iterable[int]) -> list[list[int]]:
    """The nodes of each label, ordered by the least node of each."""
    groups: dict[int, list[int]] = defaultdict(list)
    for node, label in enumerate(labels):
        groups[label].append(node)
    return list(groups.values())


def communities(graph: Graph) -> list[list[int]]:
    """Groups with more edges inside than chance would give (the Louvain method).

    Modularity is raised by moving nodes, then groups, as long as it rises. Nodes are visited in
    their order, and the lowest of equally good groups is taken.
    """
    weights: list[dict[int, float]] = [defaultdict(float) for _ in graph]
    for node, targets in enumerate(graph):
        for target in targets:
            weights[node][target] += 1.0
            weights[target][node] += 1.0
    group_of = list(range(len(graph)))
    while True:
        groups = gathered(_local_moves(weights))
        if len(groups) == len(weights):
            return gathered(group_of)
        number = {node: place for place, group in enumerate(groups) for node in group}
        group_of = [number[group] for group in group_of]
        weights = _merged_groups(weights, groups, number)


def _local_moves(weights: Sequence[dict[int, float]]) -> list[int]:
    """Move each node to the neighbouring group where modularity gains most, until none moves.

    After the first sweep only neighbours of moved nodes are visited, which takes half the time and
    gives the same groups.
    """
    labels = list(range(len(weights)))
    # An edge within a merged group counts twice.
    degree = [sum(near.values()) for near in weights]
    total = list(degree)  # of the nodes of each label
    whole = sum(degree) or 1.0
    to_visit: Iterable[int] = labels[:]
    for _ in range(_MAX_SWEEPS):
        moved: set[int] = set()
        for node in to_visit:
            own, share = labels[node], degree[node] / whole
            total[own] -= degree[node]
            pull = {own: 0.0}
            for other, weight in weights[node].items():
                if other != node:
                    label = labels[other]
                    pull[label] = pull.get(label, 0.0) + weight
            best, most = own, pull[own] - total[own] * share + _MIN_GAIN
            for label, weight in pull.items():
                gain = weight - total[label] * share
                if gain > most or (gain == most and label < best != own):
                    best, most = label, gain
            labels[node] = best
            total[best] += degree[node]
            if best != own:
                moved.update(weights[node])
        to_visit = sorted(moved)
        if not to_visit:
            break
    return labels


def _merged_groups(
    weights: Sequence[dict[int, float]], groups: Sequence[Sequence[int]], number: dict[int, int]
) -> list[dict[int, float]]:
    merged: list[dict[int, float]] = [defaultdict(float) for _ in groups]
    for place, group in enumerate(groups):
        for node in group:
            for other, weight in weights[node].items():
                merged[place][number[other]] += weight
    return merged

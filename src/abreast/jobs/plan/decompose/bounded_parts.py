"""Divides files into parts within bounds of tokens, with as few imports between them as possible.

    parts = divide_within_bounds(files, edges, ties, TokenBounds(2_000, 40_000))

It is a multilevel partition, as graph libraries have: files are combined step by step along their
strongest ties, the groups are combined into parts, and on the way back, from large groups to single
files, whatever lowers the cut moves to a neighbouring part. It needs no compiler, as METIS would,
and gives the same parts on every machine. Files that are next to each other are tied weakly, which
decides where imports don't.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from abreast.jobs.plan.decompose.graph import gathered
from abreast.jobs.plan.decompose.inventory import FileEntry, folders_between

_TEST_TIE: Final = 2.0  # of a test to its source, in imports, besides those that it has
_LARGEST_UNIT: Final = 0.5  # of a part's size, for a file with its tests
_NEIGHBOUR_TIE: Final = 0.3  # of a file to the next one in its directory, in imports
_LEVELS: Final = (8,)  # groups of a level have at most this part of a part's size
_MAX_PASSES: Final = 8  # over the groups of a level
_MIN_GAIN: Final = 1e-9

Weights: TypeAlias = list[dict[int, float]]
"""For each node, the weights of its edges to others, in both directions."""


@dataclass(frozen=True, slots=True)
class TokenBounds:
    """The tokens of a part: at most `high`, at least `low` where that is possible."""

    low: int
    high: int
    max_files: int | None = None


def divide_within_bounds(
    files: Sequence[FileEntry],
    edges: Mapping[str, Sequence[str]],
    ties: Mapping[str, str],
    bounds: TokenBounds,
) -> list[tuple[FileEntry, ...]]:
    """The parts, ordered by their first file. `ties` has the source of each test.

    A file that is larger than `high` is a part alone.
    """
    # A file counts as so many tokens that no more than `max_files` fit.
    least = 1 if bounds.max_files is None else -(-bounds.high // bounds.max_files)
    sizes = [max(least, file.tokens) for file in files]
    level = _Level(_weights(files, edges, ties), sizes)
    finer: list[tuple[_Level, list[int]]] = []
    labels = _with_tests(files, ties, sizes, bounds.high * _LARGEST_UNIT)
    for share in (*_LEVELS, 1):
        finer.append((level, labels))
        level = level.of_groups(labels)
        labels = level.combined(bounds.high / share)
    finer.append((level, labels))
    level = level.of_groups(labels)
    parts = _Parts(level, level.filled(bounds), bounds)
    for level, labels in reversed(finer):
        parts.go_to(level, labels)
        parts.refine()
    groups = gathered(parts.part_of)
    return sorted(
        (tuple(files[place] for place in group) for group in groups),
        key=lambda group: group[0].path,
    )


def _with_tests(
    files: Sequence[FileEntry], ties: Mapping[str, str], sizes: Sequence[int], largest: float
) -> list[int]:
    """A label for each file: a test has that of its source, as long as all of it is not too large.

    A file is moved alone only at the end, when it is clear which parts there are.
    """
    number = {file.path: place for place, file in enumerate(files)}
    labels = list(range(len(files)))
    held = list(sizes)
    for place, file in enumerate(files):
        source = number.get(ties.get(file.path, ""))
        if source is not None and held[source] + sizes[place] <= largest:
            held[source] += sizes[place]
            labels[place] = source
    return labels


def _weights(
    files: Sequence[FileEntry], edges: Mapping[str, Sequence[str]], ties: Mapping[str, str]
) -> Weights:
    number = {file.path: place for place, file in enumerate(files)}
    weights: Weights = [{} for _ in files]

    def tie(one: int, other: int, weight: float) -> None:
        near = weights[one]
        near[other] = weights[other][one] = near.get(other, 0.0) + weight

    above = folder = ""
    for place, file in enumerate(files):
        for to in edges.get(file.path, ()):
            if to in number:
                tie(place, number[to], 1.0)
        source = ties.get(file.path)
        if source in number:
            tie(place, number[source], _TEST_TIE)
        above, folder = folder, file.path.rpartition("/")[0]
        if place:
            apart = 0 if folder == above else _steps_between(above, folder)
            tie(place - 1, place, _NEIGHBOUR_TIE / (1 + apart))
    return weights


def _steps_between(one: str, other: str) -> int:
    return folders_between(one.split("/") if one else [], other.split("/") if other else [])


@dataclass(slots=True)
class _Level:
    """Groups of files: the weights between them, and their sizes in tokens."""

    weights: Weights
    sizes: list[int]

    def combined(self, high: float) -> list[int]:
        """Combine neighbours, the most strongly tied first, up to a size; a label for each node.

        The strength of a tie is its weight, by the geometric mean of the sizes that it ties.
        """
        groups = _Groups(self)
        near, version, sizes = groups.near, groups.version, groups.sizes
        roots = [size**0.5 for size in sizes]
        # One entry for each node, with its strongest tie: that of any two nodes is the entry of
        # both. It is made again when its turn comes and its partner has changed since; a node that
        # has changed itself has a new one.
        waiting: list[tuple[float, int, int, int, int]] = []

        def consider(node: int) -> None:
            room, most, partner = high - sizes[node], 0.0, -1
            for other, weight in near[node].items():
                strength = weight / roots[other]
                if strength < most or sizes[other] > room:
                    continue
                if strength > most or other < partner:
                    most, partner = strength, other
            if partner >= 0:
                entry = (-most / roots[node], node, partner, version[node], version[partner])
                heappush(waiting, entry)

        for node in range(len(sizes)):
            consider(node)
        while waiting:
            _, node, partner, own, other = heappop(waiting)
            if version[node] != own:
                continue
            if version[partner] != other:
                consider(node)
                continue
            one = min(node, partner)
            groups.combine(one, max(node, partner))
            roots[one] = sizes[one] ** 0.5
            consider(one)
        return groups.labels()

    def filled(self, bounds: TokenBounds) -> list[int]:
        """Combine what is less than half full with what it is tied to most; a label for each node.

        One below the least size goes to the next other if it is tied to none with room.
        """
        groups = _Groups(self)
        waiting = [(size, node) for node, size in enumerate(self.sizes) if 2 * size < bounds.high]
        heapify(waiting)
        while waiting:
            size, node = heappop(waiting)
            if groups.version[node] < 0 or size != groups.sizes[node]:
                continue  # it was combined since
            partner = groups.partner(node, bounds)
            if partner is None:
                continue
            one = min(node, partner)
            groups.combine(one, max(node, partner))
            if 2 * groups.sizes[one] < bounds.high:
                heappush(waiting, (groups.sizes[one], one))
        return groups.labels()

    def of_groups(self, labels: Sequence[int]) -> "_Level":
        """The level above, whose nodes are the groups of these labels, in the order of these."""
        number = _numbers(labels)
        group_of = [number[label] for label in labels]
        weights: Weights = [{} for _ in number]
        sizes = [0] * len(number)
        for node, group in enumerate(group_of):
            sizes[group] += self.sizes[node]
            near = weights[group]
            for other, weight in self.weights[node].items():
                to = group_of[other]
                if to != group:
                    near[to] = near.get(to, 0.0) + weight
        return _Level(weights, sizes)


class _Groups:
    """Nodes of a level that are combined; a group has the number of its first node."""

    def __init__(self, level: _Level) -> None:
        self.near = [dict(weights) for weights in level.weights]
        self.sizes = list(level.sizes)
        self.version = [0] * len(self.sizes)
        """How often it was combined with others; -1 for one that is part of another."""
        self._parents = list(range(len(self.sizes)))

    def combine(self, one: int, other: int) -> None:
        """Make a node part of a group of a lower number."""
        near, own = self.near, self.near[one]
        self._parents[other] = one
        self.sizes[one] += self.sizes[other]
        self.version[one] += 1
        self.version[other] = -1
        for third, weight in near[other].items():
            around = near[third]
            del around[other]
            if third != one:
                own[third] = around[one] = own.get(third, 0.0) + weight
        near[other] = {}

    def partner(self, node: int, bounds: TokenBounds) -> int | None:
        """The group to combine a small one with, if there is one with room."""
        room, ties = bounds.high - self.sizes[node], self.near[node]
        tied = [other for other in ties if self.sizes[other] <= room]
        if tied:
            return min(tied, key=lambda other: (-ties[other], self.sizes[other], other))
        if self.sizes[node] >= bounds.low:
            return None
        others = (
            other
            for other, version in enumerate(self.version)
            if version >= 0 and other != node and self.sizes[other] <= room
        )
        return min(others, key=lambda other: (abs(other - node), other), default=None)

    def labels(self) -> list[int]:
        """The number of the group of each node."""
        for node in range(len(self._parents)):  # a parent has a lower number: it is final already
            self._parents[node] = self._parents[self._parents[node]]
        return self._parents


def _numbers(labels: Iterable[int]) -> dict[int, int]:
    return {label: place for place, label in enumerate(sorted(set(labels)))}


@dataclass(slots=True)
class _Parts:
    """The part of each node of a level."""

    level: _Level
    part_of: list[int]
    bounds: TokenBounds
    sizes: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = defaultdict(int)
        for node, part in enumerate(self.part_of):
            self.sizes[part] += self.level.sizes[node]

    def go_to(self, level: _Level, labels: Sequence[int]) -> None:
        """Go on with a finer level, of whose nodes these labels made the groups of this one."""
        number = _numbers(labels)
        self.part_of = [self.part_of[number[label]] for label in labels]
        self.level = level

    def refine(self) -> None:
        """Move nodes to neighbouring parts as long as that lowers the cut."""
        nodes: Iterable[int] = range(len(self.part_of))
        for _ in range(_MAX_PASSES):
            moved = [node for node in nodes if self._moved(node)]
            if not moved:
                break
            # Only what is next to a node that was moved can gain now.
            nodes = sorted({other for node in moved for other in self.level.weights[node]})

    def _moved(self, node: int) -> bool:
        """Move a node to the part that it is tied to most, if that lowers the cut.

        To try other moves, too, and take them back, lowers the cut by less than 1%, and a small
        edit would change parts all over the repository.
        """
        part_of = self.part_of
        pull: dict[int, float] = {}
        for other, weight in self.level.weights[node].items():
            part = part_of[other]
            pull[part] = pull.get(part, 0.0) + weight
        own = part_of[node]
        least = pull.pop(own, 0.0) + _MIN_GAIN
        if not pull:
            return False
        size, sizes = self.level.sizes[node], self.sizes
        # A part may become empty, but not too small.
        if sizes[own] != size and sizes[own] - size < self.bounds.low:
            return False
        room, best = self.bounds.high - size, own
        for part, weight in pull.items():
            if sizes[part] <= room and (weight > least or (weight == least and part < best != own)):
                best, least = part, weight
        if best == own:
            return False
        sizes[own] -= size
        sizes[best] += size
        part_of[node] = best
        return True

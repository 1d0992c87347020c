"""Divides files of one directory by what they import of each other.

    hubs          imported by a quarter of the others: set apart, as they would tie everything together
    imports       what is left falls into connected components
    communities   a component that is large is divided where it is thinnest

Files that import each other in a circle are one unit, and stay together. Only edges between the
files at hand count, so that what happens elsewhere in the repository changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from abreast.jobs.plan.decompose.graph import communities, components, cycles
from abreast.jobs.plan.decompose.inventory import FileEntry
from abreast.jobs.plan.spec import Options, Reason

Edges: TypeAlias = Mapping[str, Sequence[str]]

HUB_IMPORTERS: Final = 5
"""Files that import a hub, at least."""
HUB_SHARE: Final = 0.25
"""Of the other files, at least: a hub is imported by so many of them."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Files that are never parted: one alone, or a circle of imports."""

    files: tuple[FileEntry, ...]

    @property
    def name(self) -> str:
        """The path of its first file."""
        return self.files[0].path


Cluster: TypeAlias = list[Unit]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Parts of a group of files, none without files, in the order of their names.

    The hubs, if there are any, first.
    """

    way: Reason
    hubs: tuple[FileEntry, ...]
    parts: list[tuple[FileEntry, ...]]
    steps: int

    @property
    def count(self) -> int:
        """In how many the files are divided."""
        return len(self.parts) + bool(self.hubs)


class Knot:
    """Units and the edges between them."""

    def __init__(self, files: Sequence[FileEntry], edges: Edges) -> None:
        """Tie files that import each other in a circle into units."""
        number = {file.path: place for place, file in enumerate(files)}
        graph = [
            sorted({number[to] for to in edges.get(file.path, ()) if to in number})
            for file in files
        ]
        tied = sorted(cycles(graph))
        self.units = [Unit(tuple(files[place] for place in circle)) for circle in tied]
        unit = {place: which for which, circle in enumerate(tied) for place in circle}
        self.graph = [
            sorted({unit[to] for place in circle for to in graph[place]} - {which})
            for which, circle in enumerate(tied)
        ]

    def hubs(self) -> list[int]:
        """Units that many others import; none if they are most of the files."""
        importers = [0] * len(self.units)
        for targets in self.graph:
            for target in targets:
                importers[target] += 1
        least = max(HUB_IMPORTERS, HUB_SHARE * (len(self.units) - 1))
        found = [which for which, count in enumerate(importers) if count >= least]
        held = sum(len(self.units[which].files) for which in found)
        return found if 2 * held <= sum(len(unit.files) for unit in self.units) else []

    def parted(
        self, within: Sequence[int], way: Callable[[list[list[int]]], list[list[int]]]
    ) -> list[list[int]]:
        """What a way of dividing makes of some of the units."""
        place = {which: at for at, which in enumerate(within)}
        graph = [sorted(place[to] for to in self.graph[which] if to in place) for which in within]
        return [[within[at] for at in group] for group in way(graph)]


def divide_by_imports(files: Sequence[FileEntry], edges: Edges, options: Options) -> Clusters:
    """All the way, at one level: clusters of at least `min_files` files that no step would divide further.

    Smaller ones are put together. There is one part if there is no way.
    """
    if len(files) < 2 * options.min_files:
        return Clusters(Reason.IMPORTS, (), [tuple(files)], 0)
    knot = Knot(files, edges)
    hubs = knot.hubs()
    rest = [which for which in range(len(knot.units)) if which not in set(hubs)]
    if _files(knot, rest) < options.min_files:
        hubs, rest = [], list(range(len(knot.units)))
    pending, done, steps, way = [rest], [], 1, Reason.IMPORTS
    while pending:
        group = pending.pop()
        for step in (components, communities):
            steps += 1
            pieces = _gathered(knot, knot.parted(group, step), options.min_files)
            if len(pieces) > 1:
                if group is rest and step is communities and not hubs:
                    way = Reason.COMMUNITIES
                pending.extend(pieces)
                break
        else:
            done.append(group)
    return Clusters(way, _flat(knot, hubs), _ordered(knot, done), steps)


def divide_by_budget(
    files: Sequence[FileEntry], edges: Edges, options: Options, *, hubs: bool
) -> Clusters:
    """One step, for files above the budget: by components, communities, or else in the order of their names.

    Parts that fit together are put together. There is one part if all is one unit.
    """
    knot = Knot(files, edges)
    apart = knot.hubs() if hubs else []
    rest = [which for which in range(len(knot.units)) if which not in set(apart)]
    way, pieces, steps = _pieces(knot, rest, options)
    if apart and len(pieces) == 1:
        way = Reason.IMPORTS
    return Clusters(way, _flat(knot, apart), _ordered(knot, pieces), steps)


def _pieces(knot: Knot, rest: list[int], options: Options) -> tuple[Reason, list[list[int]], int]:
    hanging = knot.parted(rest, components)
    if len(hanging) == len(rest):  # nothing hangs together: there is no division by imports
        return Reason.NAMES, _filled(knot, [[which] for which in rest], options), 1
    if len(pieces := _filled(knot, hanging, options)) > 1:
        return Reason.IMPORTS, pieces, 1
    if len(pieces := _filled(knot, knot.parted(rest, communities), options)) > 1:
        return Reason.COMMUNITIES, pieces, 2
    return Reason.NAMES, _filled(knot, [[which] for which in rest], options), 3


def _gathered(knot: Knot, groups: list[list[int]], least: int) -> list[list[int]]:
    """Groups of fewer than `least` files in one, or where that is small too, with the smallest of the others."""
    large = [group for group in groups if _files(knot, group) >= least]
    small = [which for group in groups if _files(knot, group) < least for which in group]
    if small and large and _files(knot, small) < least:
        smallest = min(large, key=lambda group: (_files(knot, group), group[0]))
        smallest.extend(small)
        small = []
    return [sorted(group) for group in (*large, small) if group]


def _filled(knot: Knot, groups: list[list[int]], options: Options) -> list[list[int]]:
    """Groups put together in the order of their names, as long as they are within the budget."""
    found: list[list[int]] = []
    files = tokens = 0
    for group in groups:
        more = _files(knot, group)
        many = sum(file.tokens for which in group for file in knot.units[which].files)
        if found and not options.over(files + more, tokens + many):
            found[-1].extend(group)
            files, tokens = files + more, tokens + many
        else:
            found.append(list(group))
            files, tokens = more, many
    return found


def _files(knot: Knot, group: Iterable[int]) -> int:
    return sum(len(knot.units[which].files) for which in group)


def _flat(knot: Knot, group: Iterable[int]) -> tuple[FileEntry, ...]:
    return tuple(
        sorted(
            (file for which in group for file in knot.units[which].files),
            key=lambda file: file.path,
        )
    )


def _ordered(knot: Knot, groups: Iterable[Iterable[int]]) -> list[tuple[FileEntry, ...]]:
    return sorted((_flat(knot, group) for group in groups), key=lambda files: files[0].path)

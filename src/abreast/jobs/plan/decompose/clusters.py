"""Divides the files of one directory by their imports of each other.

    hubs          imported by a quarter of the others; separated, since they connect everything
    imports       the rest is divided into connected components
    communities   a large component is divided where it has the fewest edges

Files that import each other in a cycle are one unit, and stay together. Only edges between these
files count, so that changes elsewhere in the repository change nothing here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from abreast.jobs.plan.decompose.graph import communities, components, cycles
from abreast.jobs.plan.decompose.inventory import FileEntry
from abreast.jobs.plan.spec import Options, Reason

Edges: TypeAlias = Mapping[str, Sequence[str]]

HUB_IMPORTERS: Final = 5
"""A hub is imported by at least so many files."""
HUB_SHARE: Final = 0.25
"""A hub is imported by at least this share of the other files."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Files that are never separated: one alone, or a cycle of imports."""

    files: tuple[FileEntry, ...]

    @property
    def name(self) -> str:
        """The path of its first file."""
        return self.files[0].path


@dataclass(frozen=True, slots=True)
class Clusters:
    """Non-empty parts of a group of files, ordered by name; the hubs, if any, come first."""

    way: Reason
    hubs: tuple[FileEntry, ...]
    parts: list[tuple[FileEntry, ...]]
    steps: int

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.parts) + bool(self.hubs)


class ImportUnits:
    """Units and the edges between them."""

    def __init__(self, files: Sequence[FileEntry], edges: Edges) -> None:
        """Combine files that import each other in a cycle into units."""
        number = {file.path: place for place, file in enumerate(files)}
        graph = [
            sorted({number[to] for to in edges.get(file.path, ()) if to in number})
            for file in files
        ]
        circles = sorted(cycles(graph))
        self.units = [Unit(tuple(files[place] for place in circle)) for circle in circles]
        unit = {place: which for which, circle in enumerate(circles) for place in circle}
        self.graph = [
            sorted({unit[to] for place in circle for to in graph[place]} - {which})
            for which, circle in enumerate(circles)
        ]

    def hubs(self) -> list[int]:
        """Units that many others import; empty if they are most of the files."""
        importers = [0] * len(self.units)
        for targets in self.graph:
            for target in targets:
                importers[target] += 1
        least = max(HUB_IMPORTERS, HUB_SHARE * (len(self.units) - 1))
        found = [which for which, count in enumerate(importers) if count >= least]
        held = sum(len(self.units[which].files) for which in found)
        return found if 2 * held <= sum(len(unit.files) for unit in self.units) else []

    def divided(
        self, within: Sequence[int], way: Callable[[list[list[int]]], list[list[int]]]
    ) -> list[list[int]]:
        """Divide some of the units by the function `way`."""
        place = {which: at for at, which in enumerate(within)}
        graph = [sorted(place[to] for to in self.graph[which] if to in place) for which in within]
        return [[within[at] for at in group] for group in way(graph)]


def divide_by_imports(files: Sequence[FileEntry], edges: Edges, options: Options) -> Clusters:
    """Divide at one level into clusters of at least `min_files` files, as far as possible.

    Smaller clusters are combined. If nothing divides the files, there is one part.
    """
    if len(files) < 2 * options.min_files:
        return Clusters(Reason.IMPORTS, (), [tuple(files)], 0)
    units = ImportUnits(files, edges)
    hubs = units.hubs()
    rest = [which for which in range(len(units.units)) if which not in set(hubs)]
    if _count_files(units, rest) < options.min_files:
        hubs, rest = [], list(range(len(units.units)))
    pending, done, steps, way = [rest], [], 1, Reason.IMPORTS
    while pending:
        group = pending.pop()
        for step in (components, communities):
            steps += 1
            pieces = _without_small(units, units.divided(group, step), options.min_files)
            if len(pieces) > 1:
                if group is rest and step is communities and not hubs:
                    way = Reason.COMMUNITIES
                pending.extend(pieces)
                break
        else:
            done.append(group)
    return Clusters(way, _flat(units, hubs), _ordered(units, done), steps)


def divide_by_budget(
    files: Sequence[FileEntry], edges: Edges, options: Options, *, hubs: bool
) -> Clusters:
    """Divide files above the budget in one step: by components, communities, or else by names.

    Parts that fit the budget together are combined. If all is one unit, there is one part.
    """
    units = ImportUnits(files, edges)
    hub_units = units.hubs() if hubs else []
    rest = [which for which in range(len(units.units)) if which not in set(hub_units)]
    way, pieces, steps = _pieces(units, rest, options)
    if hub_units and len(pieces) == 1:
        way = Reason.IMPORTS
    return Clusters(way, _flat(units, hub_units), _ordered(units, pieces), steps)


def _pieces(
    units: ImportUnits, rest: list[int], options: Options
) -> tuple[Reason, list[list[int]], int]:
    connected = units.divided(rest, components)
    if len(connected) == len(rest):  # no unit imports another: there is no division by imports
        return Reason.NAMES, _filled_to_budget(units, [[which] for which in rest], options), 1
    if len(pieces := _filled_to_budget(units, connected, options)) > 1:
        return Reason.IMPORTS, pieces, 1
    if len(pieces := _filled_to_budget(units, units.divided(rest, communities), options)) > 1:
        return Reason.COMMUNITIES, pieces, 2
    return Reason.NAMES, _filled_to_budget(units, [[which] for which in rest], options), 3


def _without_small(units: ImportUnits, groups: list[list[int]], least: int) -> list[list[int]]:
    """Combine groups of fewer than `least` files into one, or add them to the smallest other."""
    large = [group for group in groups if _count_files(units, group) >= least]
    small = [which for group in groups if _count_files(units, group) < least for which in group]
    if small and large and _count_files(units, small) < least:
        smallest = min(large, key=lambda group: (_count_files(units, group), group[0]))
        smallest.extend(small)
        small = []
    return [sorted(group) for group in (*large, small) if group]


def _filled_to_budget(
    units: ImportUnits, groups: list[list[int]], options: Options
) -> list[list[int]]:
    """Combine groups in the order of their names as long as they are within the budget."""
    found: list[list[int]] = []
    files = tokens = 0
    for group in groups:
        more = _count_files(units, group)
        many = sum(file.tokens for which in group for file in units.units[which].files)
        if found and not options.over(files + more, tokens + many):
            found[-1].extend(group)
            files, tokens = files + more, tokens + many
        else:
            found.append(list(group))
            files, tokens = more, many
    return found


def _count_files(units: ImportUnits, group: Iterable[int]) -> int:
    return sum(len(units.units[which].files) for which in group)


def _flat(units: ImportUnits, group: Iterable[int]) -> tuple[FileEntry, ...]:
    return tuple(
        sorted(
            (file for which in group for file in units.units[which].files),
            key=lambda file: file.path,
        )
    )


def _ordered(units: ImportUnits, groups: Iterable[Iterable[int]]) -> list[tuple[FileEntry, ...]]:
    return sorted((_flat(units, group) for group in groups), key=lambda files: files[0].path)

"""The figures of a division: imports cut, tests with their sources, parts within bounds, stability.

The graph: a node is a file that is divided, an edge a pair of files of which one imports the other,
from the importing file to the one that defines what is imported (re-exports are seen through). A
pair counts once for each direction, however many names are imported. Files that many import count
like all others. The share of imports that are cut is that of the edges between two parts.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import FileEntry, Inventory
from abreast.jobs.plan.decompose.tested_files import sources_of_tests
from abreast.jobs.plan.settings import MAX_TOKENS, MIN_TOKENS, PlanJob
from abreast.jobs.plan.spec import Options, Plan

OPTIONS = Options(min_tokens=MIN_TOKENS, max_tokens=MAX_TOKENS)
PartOf = Mapping[str, str]


@dataclass(frozen=True)
class Divided:
    """A repository, divided as `abreast plan run` does by default."""

    plan: Plan
    imports: Imports
    files: tuple[FileEntry, ...]
    seconds: float

    @classmethod
    def of(cls, place: Path) -> "Divided":
        """Divide a directory, and measure the CPU time of all of it."""
        begun = time.process_time()
        plan, imports = PlanJob.of({"path": str(place)}, "/", str, works=False).divide()
        seconds = time.process_time() - begun
        sizes = _sizes(place, plan)
        return cls(plan, imports, sizes, seconds)

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Each file, and each file that it imports."""
        return [(one, to) for one, targets in self.imports.edges.items() for to in targets]

    @property
    def sizes(self) -> dict[str, int]:
        """The tokens of each file."""
        return {file.path: file.tokens for file in self.files}

    @property
    def sources(self) -> dict[str, str]:
        """The source of each test."""
        return sources_of_tests(self.sizes, self.imports.edges)

    def own(self) -> PartOf:
        """The part of each file."""
        return part_of(self.plan)


def _sizes(place: Path, plan: Plan) -> tuple[FileEntry, ...]:
    from abreast.jobs.plan.decompose.inventory import take_inventory

    chosen = set(plan.root.files)
    return tuple(file for file in take_inventory(place).files if file.path in chosen)


def part_of(plan: Plan) -> PartOf:
    """The leaf of each file."""
    return {path: leaf.id for leaf in plan.leaves for path in leaf.files}


def cut_share(parts: PartOf, edges: Iterable[tuple[str, str]]) -> float:
    """The share of imports that lead from one part to another."""
    crossing = [parts[one] != parts[other] for one, other in edges]
    return sum(crossing) / len(crossing) if crossing else 0.0


def together(parts: PartOf, sources: Mapping[str, str]) -> float:
    """The share of tests that are in the part of what they test."""
    return sum(parts[test] == parts[to] for test, to in sources.items()) / max(1, len(sources))


def within_bounds(plan: Plan) -> tuple[float, int]:
    """The share of parts within the bounds, and the number of single files that are larger."""
    inside = [MIN_TOKENS <= leaf.tokens <= MAX_TOKENS for leaf in plan.leaves]
    large = sum(len(leaf.files) == 1 and leaf.tokens > MAX_TOKENS for leaf in plan.leaves)
    return sum(inside) / len(inside), large


def by_folders(sizes: Mapping[str, int]) -> PartOf:
    """The parts of someone who goes by directories: whole ones, filled up to the same bound.

    A directory that fits is one part. Of a larger one, its files and the directories beneath it are
    taken in the order of their names, and put together as long as they fit.
    """
    packed = _pack("", sorted(sizes), sizes)
    return {path: files[0] for files in packed for path in files}


def _pack(folder: str, paths: Sequence[str], sizes: Mapping[str, int]) -> list[list[str]]:
    if sum(sizes[path] for path in paths) <= MAX_TOKENS or len(paths) == 1:
        return [list(paths)]
    beneath: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        name, slash, _ = path[len(folder) :].partition("/")
        beneath[f"{folder}{name}{slash}"].append(path)
    found: list[list[str]] = []
    for inner, own in beneath.items():
        for files in _pack(inner, own, sizes) if inner.endswith("/") else [own]:
            both = [*found[-1], *files] if found else files
            if found and sum(sizes[path] for path in both) <= MAX_TOKENS:
                found[-1] = both
            else:
                found.append(list(files))
    return found


def stability(divided: Divided, rounds: int = 5) -> tuple[float, float]:
    """The share of files that keep their part if one is added, and if 1% of them are edited."""
    drawn = random.Random(7)
    before = divided.own()
    added, edited = [], []
    for _ in range(rounds):
        added.append(_kept(before, *_with_new_file(divided, drawn)))
        edited.append(_kept(before, *_with_edits(divided, drawn)))
    return sum(added) / rounds, sum(edited) / rounds


def _kept(before: PartOf, files: Sequence[FileEntry], imports: Imports) -> float:
    after = part_of(decompose(Inventory(tuple(files)), imports, OPTIONS))
    return sum(after[path] == part for path, part in before.items()) / len(before)


def _with_new_file(divided: Divided, drawn: random.Random) -> tuple[list[FileEntry], Imports]:
    """A file of 500 tokens beside another, which it imports, with what that one imports."""
    beside = drawn.choice(sorted(divided.imports.edges))
    folder = beside.rpartition("/")[0]
    path = f"{folder}/new_file.py" if folder else "new_file.py"
    edges = {**divided.imports.edges, path: (beside, *divided.imports.edges[beside][:2])}
    return [*divided.files, FileEntry(path, 2_000, 500)], Imports.of(edges)


def _with_edits(divided: Divided, drawn: random.Random) -> tuple[list[FileEntry], Imports]:
    """One file of a hundred is a tenth longer, and imports one file more of its directory."""
    changed = set(drawn.sample(sorted(divided.sizes), max(1, len(divided.files) // 100)))
    files = [
        replace(file, tokens=file.tokens + file.tokens // 10) if file.path in changed else file
        for file in divided.files
    ]
    near: dict[str, list[str]] = defaultdict(list)
    for path in divided.imports.edges:
        near[path.rpartition("/")[0]].append(path)
    edges = dict(divided.imports.edges)
    for path in sorted(changed & edges.keys()):
        edges[path] = (*edges[path], drawn.choice(near[path.rpartition("/")[0]]))
    return files, Imports.of(edges)

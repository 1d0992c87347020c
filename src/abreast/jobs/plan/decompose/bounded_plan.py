"""The nodes of a plan whose leaves are within bounds of tokens: see `bounded_parts`.

A part belongs to the directory that most of it is in. Inner nodes are directories with several
parts; a chain of directories without a choice is not shown as levels.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from abreast.jobs.plan.decompose.bounded_parts import TokenBounds, divide_within_bounds
from abreast.jobs.plan.decompose.inventory import FileEntry
from abreast.jobs.plan.spec import ROOT, NodeKind, Options, PlanNode, Reason, node_id

_MOST: Final = 0.6  # of a part's tokens are beneath the directory that it belongs to
_NAMED: Final = 2  # entries in the name of a part


@dataclass(frozen=True, slots=True)
class _Part:
    """Files that make a leaf, the directory that they belong to, and the id of the leaf."""

    id: str
    home: tuple[str, ...]
    files: tuple[FileEntry, ...]
    scope: str


def bounded_nodes(
    files: Sequence[FileEntry],
    edges: Mapping[str, Sequence[str]],
    sources: Mapping[str, str],
    options: Options,
) -> list[PlanNode]:
    """The nodes, each before its children; `sources` has the source of each test."""
    high = options.max_tokens or sum(file.tokens for file in files) or 1
    bounds = TokenBounds(options.min_tokens or 0, high, options.max_files)
    counts = Counter(file.path.rpartition("/")[0] for file in files)
    importers = Counter(to for targets in edges.values() for to in targets)
    parts = [
        _make_part(group, importers, sources, counts)
        for group in divide_within_bounds(files, edges, sources, bounds)
    ]
    parts.sort(key=lambda part: (part.home, part.files[0].path))
    return list(_Tree(options).nodes(_Branch(ROOT, None, 0, (), parts)))


@dataclass(frozen=True, slots=True)
class _Branch:
    """A future node: its parts, and the directory that they belong to."""

    id: str
    parent: str | None
    depth: int
    folder: tuple[str, ...]
    parts: Sequence[_Part]


@dataclass(frozen=True, slots=True)
class _Tree:
    options: Options

    def nodes(self, branch: _Branch) -> Iterator[PlanNode]:
        """The node of a branch, and those beneath it."""
        if len(branch.parts) <= 1 or self.options.max_depth == 0:
            yield self._node(branch, (), branch.parts[0].scope if branch.parts else "./")
            return
        folder, groups = _grouped(branch.folder, branch.parts)
        if branch.depth + 1 >= self.options.max_depth:
            groups = [[part] for part in branch.parts]
        below = []
        for group in groups:
            inner = (*folder, *group[0].home[len(folder) :][:1]) if len(group) > 1 else folder
            name = group[0].id if len(group) == 1 else node_id("group", "/".join(inner))
            below.append(_Branch(name, branch.id, branch.depth + 1, inner, group))
        yield self._node(branch, tuple(each.id for each in below), f"{'/'.join(folder)}/")
        for each in below:
            yield from self.nodes(each)

    def _node(self, branch: _Branch, children: tuple[str, ...], scope: str) -> PlanNode:
        files = [file for part in branch.parts for file in part.files]
        tokens = sum(file.tokens for file in files)
        over = not children and self.options.over(len(files), tokens)
        reason = Reason.NO_PROGRESS if over else Reason.FITS
        if len(branch.parts) > 1:
            reason = Reason.COMMUNITIES if children else Reason.MAX_DEPTH
        kind = NodeKind.GROUP if children else NodeKind.CLUSTER
        return PlanNode(
            branch.id,
            branch.parent,
            children,
            branch.depth,
            tuple(sorted(file.path for file in files)),
            tokens,
            reason,
            over,
            NodeKind.DIRECTORY if branch.parent is None else kind,
            "./" if branch.parent is None else scope,
        )


def _grouped(
    folder: tuple[str, ...], parts: Sequence[_Part]
) -> tuple[tuple[str, ...], list[list[_Part]]]:
    """The parts by the directory beneath this one that they belong to; at least two groups.

    A part that belongs to the directory itself is a group alone. If all belong to one directory
    beneath it, that one is divided instead.
    """
    while True:
        groups: list[list[_Part]] = []
        for part in parts:
            key = part.home[len(folder) :][:1]
            if key and groups and groups[-1][0].home[len(folder) :][:1] == key:
                groups[-1].append(part)
            else:
                groups.append([part])
        if len(groups) > 1:
            return folder, groups
        folder = (*folder, parts[0].home[len(folder)])


def _make_part(
    files: Sequence[FileEntry],
    importers: Counter[str],
    sources: Mapping[str, str],
    counts: Mapping[str, int],
) -> _Part:
    inside = {file.path for file in files}
    home = _home([file for file in files if file.path not in sources] or files)
    # The id is made of the file that most others import, which small edits leave.
    own = inside - sources.keys() or inside
    center = min(own, key=lambda path: (-importers[path], path))
    name = node_id("part", center, slug=f"{'/'.join(home)}/{_stem(center)}")
    return _Part(name, home, tuple(files), _scope(home, files, sources, counts))


def _home(files: Sequence[FileEntry]) -> tuple[str, ...]:
    """The deepest directory that has most of the tokens of these files."""
    own: dict[str, int] = defaultdict(int)
    for file in files:
        own[file.path.rpartition("/")[0]] += file.tokens or 1
    weight: dict[tuple[str, ...], int] = defaultdict(int)
    for folder, tokens in own.items():
        parts = folder.split("/") if folder else []
        for depth in range(len(parts) + 1):
            weight[tuple(parts[:depth])] += tokens
    least = _MOST * weight[()]
    return min(
        (each for each in weight if weight[each] >= least), key=lambda each: (-len(each), each)
    )


def _scope(
    home: tuple[str, ...],
    files: Sequence[FileEntry],
    sources: Mapping[str, str],
    counts: Mapping[str, int],
) -> str:
    """A readable name: the directory, and what of it the part has, the largest first."""
    own = Counter(file.path.rpartition("/")[0] for file in files)
    weight: dict[str, int] = defaultdict(int)
    places: set[str] = set()
    within = f"{'/'.join(home)}/" if home else ""
    for file in files:
        folder = file.path.rpartition("/")[0]
        whole = own[folder] == counts[folder] and folder != within.rstrip("/")
        entry = f"{folder}/" if whole else file.path
        places.add(entry)
        tested = file.path in sources and not whole
        weight[entry.removeprefix(within)] += 0 if tested else max(1, file.tokens)
    beneath = {entry for entry in weight if not within or f"{within}{entry}" in places}
    shown = sorted(weight, key=lambda entry: (entry not in beneath, -weight[entry], entry))
    if set(own) == {within.rstrip("/")} and own == {within.rstrip("/"): counts[within.rstrip("/")]}:
        return within or "*"
    listed = ", ".join(shown[:_NAMED]) + (", .." if len(shown) > _NAMED else "")
    return f"{within}{{{listed}}}"


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]

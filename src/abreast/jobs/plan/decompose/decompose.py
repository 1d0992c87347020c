"""Divides a repository into subplans: a pure function that gives the same tree for the same files.

    plan = decompose(take_inventory(root), read_imports(root, inventory), Options())

It divides by directories first; where these don't divide, by imports, then by communities of
imports; above a budget, by names. With `min_tokens` it divides by imports alone, into parts within
bounds (`bounded_plan`). A leaf has the reason why it is not divided: `max_depth`,
`min_files`, `no_progress`, `fits`. An id is made of a path, never of a position, so a file added
elsewhere does not change it (unless a new level pushes what is beneath it over `max_depth`).

A directory is a level of the tree unless its neighbours together (other directories and files of
the directory above) have at most `2 * min_files` files: then its parts take its place. A chain of
directories without neighbours is never shown as levels, and 40 files, however nested, are never
deeper than 2. Whether a directory is a level depends on its neighbours alone, so a file added
elsewhere removes no level.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from abreast.jobs.plan.decompose.bounded_plan import bounded_nodes
from abreast.jobs.plan.decompose.clusters import divide_by_budget, divide_by_imports
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import FileEntry, Inventory
from abreast.jobs.plan.decompose.tested_files import sources_of_tests
from abreast.jobs.plan.spec import ROOT, NodeKind, Options, Plan, PlanNode, Reason, node_id

# Neighbours, in multiples of min_files, below which a directory is not a level. With less, 40 files
# of 11 + 11 + 11 + 7 would nest to depth 3.
_FEW_NEIGHBOURS: Final = 2


@dataclass(slots=True, eq=False)
class Folder:
    """A directory: its own files, and the directories in it that have any beneath them."""

    path: str
    files: list[FileEntry] = field(default_factory=list)
    folders: "dict[str, Folder]" = field(default_factory=dict)
    count: int = 0
    """Files beneath it, at any depth."""
    tokens: int = 0
    parts: int = 1
    """The number of parts it would be divided into."""

    def all_files(self) -> Iterator[FileEntry]:
        """All files beneath it, in no order."""
        pending = [self]
        while pending:
            folder = pending.pop()
            yield from folder.files
            pending.extend(folder.folders.values())

    def bottom(self) -> "Folder":
        """The directory with its files, if a chain of directories leads to them."""
        folder = self
        while not folder.files and len(folder.folders) == 1:
            (folder,) = folder.folders.values()
        return folder


@dataclass(frozen=True, slots=True)
class FolderPart:
    """A directory, or only the files in it."""

    folder: Folder
    whole: bool


def decompose(
    inventory: Inventory, imports: Imports | None = None, options: Options | None = None
) -> Plan:
    """The plan of an inventory. Without imports it divides by directories and names alone."""
    options = options or Options()
    imports = imports or Imports()
    notes = (*inventory.notes, *imports.notes)
    if options.min_tokens is not None:
        sources = sources_of_tests(inventory.paths, imports.edges)
        nodes = bounded_nodes(inventory.files, imports.edges, sources, options)
        return Plan(tuple(nodes), options, 1, notes)
    work = _Decomposition(imports, options)
    return Plan(
        tuple(work.run(grow(inventory.files, options))),
        options,
        work.steps,
        notes,
    )


@dataclass(slots=True, eq=False)
class _Part:
    """A future node: either a whole directory, or files of one."""

    id: str
    kind: NodeKind
    scope: str
    files: tuple[FileEntry, ...]
    folder: Folder
    anchors: tuple[str, ...] = ()  # the first files of the clusters that contain it
    final: bool = False  # whether only a budget would divide it further


class _Split(NamedTuple):
    reason: Reason
    parts: list[_Part]


@dataclass(slots=True)
class _Decomposition:
    imports: Imports
    options: Options
    steps: int = 0
    made: list[PlanNode] = field(default_factory=list)

    def run(self, root: Folder) -> list[PlanNode]:
        """Make the nodes, each before its children, and these in the order of their parts."""
        whole = _Part(ROOT, NodeKind.DIRECTORY, "./", _sorted(root.all_files()), root)
        pending: list[tuple[_Part, str | None, int]] = [(whole, None, 0)]
        while pending:
            part, parent, depth = pending.pop()
            split = self._split(part, depth)
            self.made.append(
                PlanNode(
                    part.id,
                    parent,
                    tuple(child.id for child in split.parts),
                    depth,
                    tuple(file.path for file in part.files),
                    _tokens(part.files),
                    split.reason,
                    not split.parts and self._over(part),
                    part.kind,
                    part.scope,
                )
            )
            pending.extend((child, part.id, depth + 1) for child in reversed(split.parts))
        return self.made

    def _split(self, part: _Part, depth: int) -> _Split:
        """The parts and how they were found; or no parts, and the reason."""
        if stays_whole(len(part.files), _tokens(part.files), self.options):
            few = len(part.files) <= self.options.min_files
            return _Split(Reason.MIN_FILES if few else Reason.FITS, [])
        if depth >= self.options.max_depth:
            return _Split(Reason.MAX_DEPTH, [])
        found = self._by_folders(part) or self._by_content(part)
        return found or _Split(Reason.NO_PROGRESS, [])

    def _by_folders(self, part: _Part) -> _Split | None:
        if part.kind is not NodeKind.DIRECTORY:
            return None
        self.steps += 1
        found = divide_by_folders(part.folder, self.options)
        parts = [_of_folder(each.folder, whole=each.whole) for each in found]
        return _Split(Reason.DIRECTORIES, parts) if len(parts) > 1 else None

    def _by_content(self, part: _Part) -> _Split | None:
        over = self._over(part)
        if part.final and not over:
            return None
        edges, options = self.imports.edges, self.options
        if over:
            first = part.kind in {NodeKind.DIRECTORY, NodeKind.FILES}
            found = divide_by_budget(part.files, edges, options, hubs=first)
        else:
            found = divide_by_imports(part.files, edges, options)
        self.steps += found.steps
        if found.count < 2:  # noqa: PLR2004 - a single part divides nothing
            return None
        place = part.folder.bottom()
        parts = [_of_cluster(part, place, files, NodeKind.CLUSTER) for files in found.parts]
        if found.hubs:
            parts.insert(0, _of_cluster(part, place, found.hubs, NodeKind.HUBS))
        return _Split(found.way, parts)

    def _over(self, part: _Part) -> bool:
        return self.options.over(len(part.files), _tokens(part.files))


def _of_folder(folder: Folder, *, whole: bool) -> _Part:
    if whole:
        return _Part(
            node_id("folder", folder.path),
            NodeKind.DIRECTORY,
            f"{folder.path}/",
            _sorted(folder.all_files()),
            folder,
        )
    scope = f"{folder.path}/*" if folder.path else "*"
    return _Part(
        node_id("files", folder.path), NodeKind.FILES, scope, _sorted(folder.files), folder
    )


def _of_cluster(part: _Part, place: Folder, files: tuple[FileEntry, ...], kind: NodeKind) -> _Part:
    first = files[0].path
    anchors = (*part.anchors, first if kind is NodeKind.CLUSTER else "hubs/")  # no file ends so
    # The id is made of the directory, not of the parent node: changes elsewhere decide whether that
    # is the directory or only its files.
    name = node_id("cluster", place.path, *anchors, slug=f"{place.path}/{first}")
    short = [file.path.rpartition("/")[2] for file in files]
    within = f"{place.path}/" if place.path else ""
    listed = ", ".join(short[:2]) + (", .." if len(short) > 2 else "")  # noqa: PLR2004 - two names are listed
    return _Part(name, kind, f"{within}{{{listed}}}", files, place, anchors, final=True)


def _sorted(files: Iterable[FileEntry]) -> tuple[FileEntry, ...]:
    return tuple(sorted(files, key=lambda file: file.path))


def _tokens(files: Sequence[FileEntry]) -> int:
    return sum(file.tokens for file in files)


# --- directories ----------------------------------------------------------------------------------


def grow(files: Iterable[FileEntry], options: Options) -> Folder:
    """Build the tree of directories of files, with their counts."""
    root = Folder("")
    every = [root]
    for file in files:
        folder = root
        for name in file.path.split("/")[:-1]:
            if name not in folder.folders:
                every.append(Folder(f"{folder.path}/{name}" if folder.path else name))
                folder.folders[name] = every[-1]
            folder = folder.folders[name]
        folder.files.append(file)
    for folder in reversed(every):  # a directory comes after the one above it
        folder.count = len(folder.files) + sum(each.count for each in folder.folders.values())
        folder.tokens = sum(file.tokens for file in folder.files) + sum(
            each.tokens for each in folder.folders.values()
        )
        folder.parts = bool(folder.files) + sum(
            each.parts if _is_replaced_by_parts(folder, each, options) else 1
            for each in folder.folders.values()
        )
    return root


def divide_by_folders(folder: Folder, options: Options) -> list[FolderPart]:
    """The parts of a directory, ordered by path; fewer than two if its files are in one place."""
    found: list[FolderPart] = []
    pending = [(folder, True)]
    while pending:
        here, opened = pending.pop()
        if not opened:
            found.append(FolderPart(here, whole=True))
            continue
        if here.files:
            found.append(FolderPart(here, whole=not here.folders))
        beneath = (here.folders[name] for name in sorted(here.folders, reverse=True))
        pending.extend((each, _is_replaced_by_parts(here, each, options)) for each in beneath)
    return found


def stays_whole(files: int, tokens: int, options: Options) -> bool:
    """Whether that many files and tokens are a leaf at any depth."""
    return not options.over(files, tokens) and (files <= options.min_files or options.budgeted)


def _is_replaced_by_parts(above: Folder, folder: Folder, options: Options) -> bool:
    return (
        folder.parts > 1  # a chain keeps the name of its top
        and above.count - folder.count <= _FEW_NEIGHBOURS * options.min_files
        and not stays_whole(folder.count, folder.tokens, options)
    )

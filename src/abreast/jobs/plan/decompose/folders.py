"""Divides files by their directories.

A directory is a level of the tree unless its neighbours together (other directories and files of
the directory above) have at most `2 * min_files` files: then its parts take its place. A chain of
directories without neighbours is never shown as levels, and 40 files, however nested, are never
deeper than 2. Whether a directory is a level depends on its neighbours alone, so a file added
elsewhere removes no level.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from abreast.jobs.plan.decompose.inventory import FileEntry
from abreast.jobs.plan.spec import Options

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


def grow(files: Iterable[FileEntry], options: Options) -> Folder:
    """Build the tree of directories of files, with their counts."""
    root = Folder("")
    every = [root]
    known: dict[str, Folder] = {"": root}
    for file in files:
        place = file.path.rpartition("/")[0]
        folder = known.get(place)
        if folder is None:
            folder = root
            for name in place.split("/"):
                beneath = folder.folders.get(name)
                if beneath is None:
                    beneath = Folder(f"{folder.path}/{name}" if folder.path else name)
                    folder.folders[name] = beneath
                    every.append(beneath)
                folder = beneath
            known[place] = folder
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

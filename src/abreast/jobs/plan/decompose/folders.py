"""Divides files by their directories.

A directory is a level of the tree if what lies beside it is worth a level. It is not one if its
neighbours together (other directories and files of the directory above) have at most `2 *
min_files` files: then its parts stand in its place. With no neighbours at all this is a chain,
which no tree shows; and it is why 40 files, however nested, are never deeper than 2. Whether a
directory is a level depends on its neighbours alone: a file added elsewhere takes none away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from abreast.jobs.plan.decompose.inventory import FileEntry
from abreast.jobs.plan.spec import Options

_SLIGHT: Final = 2  # times min_files; with less, 40 files of 11 + 11 + 11 + 7 would nest to depth 3


@dataclass(slots=True, eq=False)
class Folder:
    """A directory: its own files, and the directories in it that have any beneath them."""

    path: str
    files: list[FileEntry] = field(default_factory=list)
    folders: dict[str, Folder] = field(default_factory=dict)
    count: int = 0
    """Files beneath it, at any depth."""
    tokens: int = 0
    parts: int = 1
    """In how many it would be divided."""

    def all_files(self) -> Iterator[FileEntry]:
        """All beneath it, in no order."""
        pending = [self]
        while pending:
            folder = pending.pop()
            yield from folder.files
            pending.extend(folder.folders.values())

    def bottom(self) -> Folder:
        """Where its files are, if a chain of directories leads to them."""
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
    """The directories of files, counted."""
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
            each.parts if _stands_aside(folder, each, options) else 1
            for each in folder.folders.values()
        )
    return root


def divide_by_folders(folder: Folder, options: Options) -> list[FolderPart]:
    """The parts of a directory, in the order of their paths: fewer than two if its files are all in one place."""
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
        pending.extend((each, _stands_aside(here, each, options)) for each in beneath)
    return found


def stays_whole(files: int, tokens: int, options: Options) -> bool:
    """Whether so much is a leaf at any depth."""
    return not options.over(files, tokens) and (files <= options.min_files or options.budgeted)


def _stands_aside(above: Folder, folder: Folder, options: Options) -> bool:
    return (
        folder.parts > 1  # a chain keeps the name of its top
        and above.count - folder.count <= _SLIGHT * options.min_files
        and not stays_whole(folder.count, folder.tokens, options)
    )

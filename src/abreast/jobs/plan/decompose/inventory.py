"""The files of a repository, with their sizes and tokens.

    inventory = take_inventory(Path("."))
    inventory.paths                       # root-relative, "/" between the parts, sorted

Tokens are the characters of a text divided by four, rounded up: right within a third for code and
prose, and the same on every machine. Binary files have none; a huge file is not read, and its
tokens are a quarter of its bytes.
"""

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final, Self

from abreast.jobs.plan.errors import PlanInvalid
from abreast.worktrees.merge.listing import (
    BINARY_PREFIX,
    WithoutLinks,
    count_in_words,
    is_binary,
    list_tracked,
    walk_tree,
)

HUGE: Final = 1_000_000
"""Bytes above which a file is marked, and not read."""
_CHARACTERS_PER_TOKEN: Final = 4


class FileForm(StrEnum):
    """What a path is."""

    FILE = "file"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: its path from the root, its size in bytes, and roughly its tokens."""

    path: str
    size: int = 0
    tokens: int = 0
    form: FileForm = FileForm.FILE
    binary: bool = False
    huge: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """Files ordered by path; `source` says where they come from, `notes` what was left out."""

    files: tuple[FileEntry, ...]
    source: str = "given"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Sort the files; raises `PlanInvalid` for an absolute, outside or duplicate path."""
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.path)))
        before = None
        for file in self.files:
            parts = file.path.split("/")
            if "" in parts or "." in parts or ".." in parts:
                raise PlanInvalid(f"{file.path!r} is not a path from the root")
            if file.path == before:
                raise PlanInvalid(f"{file.path!r} comes twice")
            before = file.path

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths."""
        return tuple(file.path for file in self.files)

    def without_submodules(self) -> "Inventory":
        """The files that can be worked on.

        A submodule is a repository of its own, and no worktree has its files.
        """
        kept = tuple(file for file in self.files if file.form is not FileForm.SUBMODULE)
        left = len(self.files) - len(kept)
        if not left:
            return self
        note = count_in_words(left, "submodule is", "submodules are", "left out")
        return Inventory(kept, self.source, (*self.notes, note))

    @property
    def tokens(self) -> int:
        """The tokens of all files."""
        return sum(file.tokens for file in self.files)

    @classmethod
    def of(cls, paths: Iterable[str] | Mapping[str, int], *, root: str = "") -> Self:
        """An inventory of paths alone, or of paths with their tokens.

        Those under `root` are made relative to it.
        """
        sizes = paths if isinstance(paths, Mapping) else dict.fromkeys(paths, 0)
        return cls(
            tuple(
                FileEntry(
                    PurePosixPath(path).relative_to(root).as_posix() if root else path,
                    tokens * _CHARACTERS_PER_TOKEN,
                    tokens,
                )
                for path, tokens in sizes.items()
            )
        )


def take_inventory(root: Path, *, untracked: bool = False) -> Inventory:
    """The files that git tracks beneath `root`, as they are on disk now; without git, all files.

    Links are not followed. Files that git doesn't track are left out and counted in the notes,
    unless `untracked`; ignored files are always left out. If git tracks nothing, the files that it
    doesn't ignore are taken; if it ignores all (a directory of installed packages), all files.
    Raises `NotADirectoryError`.
    """
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a directory")
    listed = list_tracked(root, untracked=untracked)
    paths, links, notes = listed or (list(walk_tree(root)), set(), [])
    without_links = WithoutLinks(root)
    entries = [
        _entry(root, path, link=path in links) if without_links.holds(path) else None
        for path in paths
    ]
    files = [entry for entry in entries if isinstance(entry, FileEntry)]
    if missing := entries.count(None):
        notes.append(count_in_words(missing, "tracked file is", "tracked files are", "not on disk"))
    if special := len(entries) - len(files) - missing:
        notes.append(count_in_words(special, "path is", "paths are", "neither a file nor a link"))
    return Inventory(tuple(files), "tree" if listed is None else "git", tuple(notes))


def _entry(root: Path, path: str, *, link: bool) -> FileEntry | str | None:
    place = root / path
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(found.st_mode):
        return FileEntry(path, found.st_size, form=FileForm.SYMLINK)
    if stat.S_ISDIR(found.st_mode):
        return FileEntry(path, form=FileForm.SUBMODULE) if link else None
    if not stat.S_ISREG(found.st_mode):
        return "special"
    huge = found.st_size > HUGE
    with place.open("rb") as opened:
        content = opened.read(BINARY_PREFIX if huge else -1)
    if is_binary(content):
        return FileEntry(path, found.st_size, binary=True, huge=huge)
    characters = found.st_size if huge else len(content.decode(errors="replace"))
    return FileEntry(path, found.st_size, -(-characters // _CHARACTERS_PER_TOKEN), huge=huge)


def folders_between(one: Sequence[str], other: Sequence[str]) -> int:
    """The steps from one directory to another, up and down; each is given by its parts."""
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return len(one) + len(other) - 2 * shared

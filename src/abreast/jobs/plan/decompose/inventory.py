"""The files of a repository: which there are, how long they are, and which of them nobody would read.

    inventory = take_inventory(Path("."))
    inventory.paths                       # root-relative, "/" between the parts, sorted

Tokens are the characters of a text divided by four, rounded up: right within a third for code and prose, and the same
on every machine. Binary files have none; a huge file is not read, and has a quarter of its bytes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from abreast.jobs.plan.errors import PlanInvalid
from abreast.worktrees.git import GitFailed
from abreast.worktrees.merge.git import git, names

HUGE: Final = 1_000_000
"""Bytes above which a file is marked, and not read."""
_LOOKED_AT: Final = 8_000  # bytes; git calls a file binary if there is a NUL among these
_CHARACTERS: Final = 4  # per token
_GIT_LINK: Final = "160000"
# Of a tree without git: what tools keep there, and nobody edits.
_LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", ".abreast", "__pycache__"})


class FileForm(StrEnum):
    """What a path is."""

    FILE = "file"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: its path from the root, its size in bytes, and about how many tokens a model reads in it."""

    path: str
    size: int = 0
    tokens: int = 0
    form: FileForm = FileForm.FILE
    binary: bool = False
    huge: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """Files in the order of their paths. `notes` say what was left out; `source` is where they come from."""

    files: tuple[FileEntry, ...]
    source: str = "given"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Sort them; a path that is absolute, leaves the root or comes twice is `PlanInvalid`."""
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

    def without_submodules(self) -> Inventory:
        """What can be worked on: a submodule is a repository of its own, and no worktree has its files."""
        kept = tuple(file for file in self.files if file.form is not FileForm.SUBMODULE)
        left = len(self.files) - len(kept)
        if not left:
            return self
        note = _counted(left, "submodule is", "submodules are", "left out")
        return Inventory(kept, self.source, (*self.notes, note))

    @property
    def tokens(self) -> int:
        """Of all files."""
        return sum(file.tokens for file in self.files)

    @classmethod
    def of(cls, paths: Iterable[str] | Mapping[str, int], *, root: str = "") -> Inventory:
        """An inventory of paths alone, or of paths with their tokens; those under `root` are made relative to it."""
        sizes = paths if isinstance(paths, Mapping) else dict.fromkeys(paths, 0)
        return cls(tuple(FileEntry(_beneath(path, root), sizes[path] * _CHARACTERS, sizes[path]) for path in sizes))


def take_inventory(root: Path, *, untracked: bool = False) -> Inventory:
    """The files that git tracks beneath `root`, as they are on disk now; without git all that are there.

    Links are not followed. Files that git doesn't track are left out and counted in the notes, unless `untracked`;
    those it ignores always are. Where git tracks nothing, what it doesn't ignore is taken; where it ignores all (a
    directory of installed packages), the tree. Raises `NotADirectoryError`.
    """
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a directory")
    listed = _tracked(root, untracked=untracked)
    if listed is not None:
        paths, links, notes = listed
        source = "git"
    else:
        paths, links, notes = list(_walk(root)), set(), []
        source = "tree"
    files, missing, special = [], 0, 0
    solid = _Solid(root)
    for path in paths:
        entry = _entry(root, path, link=path in links) if solid.holds(path) else None
        if isinstance(entry, FileEntry):
            files.append(entry)
        elif entry is None:
            missing += 1
        else:
            special += 1
    if missing:
        notes.append(_counted(missing, "tracked file is", "tracked files are", "not on disk"))
    if special:
        notes.append(_counted(special, "path is", "paths are", "neither a file nor a link"))
    return Inventory(tuple(files), source, tuple(notes))


def list_paths(root: Path, git_dir: Path | None = None) -> list[str]:
    """What a snapshot has: files and links that git tracks or doesn't ignore; without git, all of them. Sorted.

    With a `git_dir`, that is what says what is tracked and ignored, and `root` is a worktree whose own git directory
    may have been changed or removed: what is tracked there besides is listed too.
    """
    listed = _tracked(root, untracked=True, git_dir=git_dir)
    solid = _Solid(root)
    return sorted(
        path
        for path in (_walk(root) if listed is None else listed[0])
        if solid.holds(path) and ((place := root / path).is_symlink() or place.is_file())
    )


def list_submodules(root: Path) -> list[str]:
    """The paths of the submodules beneath `root`, whether their files are there or not. Sorted."""
    listed = _tracked(root, untracked=False)
    return [] if listed is None else sorted(listed[1])


def _tracked(
    root: Path, *, untracked: bool, git_dir: Path | None = None
) -> tuple[list[str], set[str], list[str]] | None:
    extra = {} if git_dir is None else {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(_top(root, git_dir))}
    try:
        listed = git("ls-files", "-z", "--stage", cwd=root, extra=extra).stdout
        others = names(git("ls-files", "-z", "--others", "--exclude-standard", cwd=root, extra=extra).stdout)
    except GitFailed as error:
        if "not a git repository" in str(error) or "not installed" in str(error):
            return None
        raise
    if git_dir is not None:
        with suppress(GitFailed):  # it may be ruined, or gone
            own = {"GIT_CEILING_DIRECTORIES": str(git_dir.parent)}
            listed += git("ls-files", "-z", "--stage", cwd=root, extra=own).stdout
    staged = [line.split("\t", 1) for line in names(listed)]
    paths = {path for _, path in staged}  # a set: a path with an unsettled merge comes three times
    others = [path for path in others if not path.endswith("/") and path.split("/", 1)[0] not in _LEFT_OUT]
    if not paths and not others:
        return None
    links = {path for mode, path in staged if mode.startswith(_GIT_LINK)}
    if untracked or not paths:
        return [*paths, *others], links, []
    notes = [_counted(len(others), "file is", "files are", "not tracked by git, and left out")] if others else []
    return list(paths), links, notes


def _top(root: Path, git_dir: Path) -> Path:
    """The top of the worktree that `root` is in: it is beside the git directory."""
    return git_dir.parent / root.relative_to(git_dir.parent).parts[0]


def _walk(root: Path) -> Iterator[str]:
    for place, folders, files in os.walk(root):
        kept = [name for name in folders if name not in _LEFT_OUT]
        linked = [name for name in kept if Path(place, name).is_symlink()]
        folders[:] = [name for name in kept if name not in linked]
        above = Path(place).relative_to(root).as_posix()
        for name in [*(name for name in files if name != ".git"), *linked]:  # of a worktree whose repository is gone
            yield name if above == "." else f"{above}/{name}"


class _Solid:
    """Whether a path is reached without following a link: git may know a directory that is a link by now."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, bool] = {"": True}

    def holds(self, path: str) -> bool:
        above = path.rpartition("/")[0]
        if above not in self._known:
            self._known[above] = self.holds(above) and not (self._root / above).is_symlink()
        return self._known[above]


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
        content = opened.read(_LOOKED_AT if huge else -1)
    if is_binary(content):
        return FileEntry(path, found.st_size, binary=True, huge=huge)
    characters = found.st_size if huge else len(content.decode(errors="replace"))
    return FileEntry(path, found.st_size, -(-characters // _CHARACTERS), huge=huge)


def is_binary(content: bytes) -> bool:
    """As git sees it: there is a NUL near its beginning."""
    return b"\0" in content[:_LOOKED_AT]


def _beneath(path: str, root: str) -> str:
    return PurePosixPath(path).relative_to(root).as_posix() if root else path


def _counted(count: int, one: str, many: str, rest: str) -> str:
    return f"{count:,} {one if count == 1 else many} {rest}"

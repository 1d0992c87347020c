"""The paths of a directory's files: those that git tracks or doesn't ignore.

Without git, all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from abreast.worktrees.git import GitFailed
from abreast.worktrees.merge.git import git, names

BINARY_PREFIX: Final = 8_000
"""Bytes; git calls a file binary if there is a NUL among these."""
_GIT_LINK: Final = "160000"
# Of a tree without git: what tools keep there and people do not edit.
_LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", ".abreast", "__pycache__"})


def list_paths(root: Path, git_dir: Path | None = None) -> list[str]:
    """What a snapshot has: files and links that git tracks or doesn't ignore.

    Without git, all of them. Sorted.

    With a `git_dir`, that is what says what is tracked and ignored, and `root` is a worktree whose
    own git directory may have been changed or removed: what is tracked there besides is listed too.
    """
    listed = list_tracked(root, untracked=True, git_dir=git_dir)
    solid = WithoutLinks(root)
    return sorted(
        path
        for path in (walk_tree(root) if listed is None else listed[0])
        if solid.holds(path) and ((place := root / path).is_symlink() or place.is_file())
    )


def list_submodules(root: Path) -> list[str]:
    """The paths of the submodules beneath `root`, whether their files are there or not. Sorted."""
    listed = list_tracked(root, untracked=False)
    return [] if listed is None else sorted(listed[1])


def list_tracked(
    root: Path, *, untracked: bool, git_dir: Path | None = None
) -> tuple[list[str], set[str], list[str]] | None:
    """Paths, those of submodules, and notes on what is left out.

    None where git tracks nothing and lists nothing.
    """
    extra = (
        {}
        if git_dir is None
        else {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(_top(root, git_dir))}
    )
    try:
        listed = git("ls-files", "-z", "--stage", cwd=root, extra=extra).stdout
        others = names(
            git("ls-files", "-z", "--others", "--exclude-standard", cwd=root, extra=extra).stdout
        )
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
    others = [
        path for path in others if not path.endswith("/") and path.split("/", 1)[0] not in _LEFT_OUT
    ]
    if not paths and not others:
        return None
    links = {path for mode, path in staged if mode.startswith(_GIT_LINK)}
    if untracked or not paths:
        return [*paths, *others], links, []
    notes = (
        [count_in_words(len(others), "file is", "files are", "not tracked by git, and left out")]
        if others
        else []
    )
    return list(paths), links, notes


def _top(root: Path, git_dir: Path) -> Path:
    """The top of the worktree that `root` is in: it is beside the git directory."""
    return git_dir.parent / root.relative_to(git_dir.parent).parts[0]


def walk_tree(root: Path) -> Iterator[str]:
    """All files and links beneath `root`, without what version control and caches keep there."""
    for place, folders, files in os.walk(root):
        kept = [name for name in folders if name not in _LEFT_OUT]
        linked = [name for name in kept if Path(place, name).is_symlink()]
        folders[:] = [name for name in kept if name not in linked]
        above = Path(place).relative_to(root).as_posix()
        for name in [
            *(name for name in files if name != ".git"),
            *linked,
        ]:  # of a worktree whose repository is gone
            yield name if above == "." else f"{above}/{name}"


class WithoutLinks:
    """Whether a path is reached without following a link: git may know a directory that is a link by now."""

    def __init__(self, root: Path) -> None:
        """Paths beneath `root`."""
        self._root = root
        self._known: dict[str, bool] = {"": True}

    def holds(self, path: str) -> bool:
        """Whether no directory above the path is a link."""
        above = path.rpartition("/")[0]
        if above not in self._known:
            self._known[above] = self.holds(above) and not (self._root / above).is_symlink()
        return self._known[above]


def is_binary(content: bytes) -> bool:
    """As git sees it: there is a NUL near its beginning."""
    return b"\0" in content[:BINARY_PREFIX]


def count_in_words(count: int, one: str, many: str, rest: str) -> str:
    """`3 files are left out`, with the verb that fits the count."""
    return f"{count:,} {one if count == 1 else many} {rest}"

"""Lists the files of a directory that git tracks or doesn't ignore; without git, all files."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from abreast.worktrees.git import GitFailed, names, run_git

# Bytes at the start of a file; git calls it binary if there is a NUL among them.
BINARY_PREFIX: Final = 8_000
_SUBMODULE_MODE: Final = "160000"
# Directories of tools, left out of a tree without git.
_LEFT_OUT: Final = frozenset({".git", ".hg", ".svn", ".abreast", "__pycache__"})


def list_paths(root: Path, git_dir: Path | None = None) -> list[str]:
    """The sorted paths for a snapshot: files and links that git tracks or doesn't ignore.

    Without git, all of them. With a `git_dir`, that directory decides what is tracked and ignored,
    and `root` is a worktree whose own git directory may have been changed or removed; files tracked
    only there are listed too.
    """
    listed = list_tracked(root, untracked=True, git_dir=git_dir)
    solid = WithoutLinks(root)
    return sorted(
        path
        for path in (walk_tree(root) if listed is None else listed[0])
        if solid.holds(path) and ((place := root / path).is_symlink() or place.is_file())
    )


def list_submodules(root: Path) -> list[str]:
    """The sorted paths of the submodules beneath `root`, also of those that are not checked out."""
    listed = list_tracked(root, untracked=False)
    return [] if listed is None else sorted(listed[1])


def list_tracked(
    root: Path, *, untracked: bool, git_dir: Path | None = None
) -> tuple[list[str], set[str], list[str]] | None:
    """Paths of files, paths of submodules, and notes on files that are left out.

    None where git lists no files.
    """
    extra = (
        {}
        if git_dir is None
        # The top of the worktree has the same parent as the git directory.
        else {
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": str(git_dir.parent / root.relative_to(git_dir.parent).parts[0]),
        }
    )
    try:
        listed = run_git("ls-files", "-z", "--stage", cwd=root, extra=extra).stdout
        others = names(
            run_git(
                "ls-files", "-z", "--others", "--exclude-standard", cwd=root, extra=extra
            ).stdout
        )
    except GitFailed as error:
        if "not a git repository" in str(error) or "not installed" in str(error):
            return None
        raise
    if git_dir is not None:
        with suppress(GitFailed):  # it may be damaged or removed
            own = {"GIT_CEILING_DIRECTORIES": str(git_dir.parent)}
            listed += run_git("ls-files", "-z", "--stage", cwd=root, extra=own).stdout
    staged = [line.split("\t", 1) for line in names(listed)]
    paths = {
        path for _, path in staged
    }  # a set: a path with an unresolved merge is listed three times
    others = [
        path for path in others if not path.endswith("/") and path.split("/", 1)[0] not in _LEFT_OUT
    ]
    if not paths and not others:
        return None
    links = {path for mode, path in staged if mode.startswith(_SUBMODULE_MODE)}
    if untracked or not paths:
        return [*paths, *others], links, []
    notes = (
        [count_in_words(len(others), "file is", "files are", "not tracked by git, and left out")]
        if others
        else []
    )
    return list(paths), links, notes


def walk_tree(root: Path) -> Iterator[str]:
    """All files and links beneath `root`, without those of version control and caches."""
    for place, folders, files in os.walk(root):
        kept = [name for name in folders if name not in _LEFT_OUT]
        linked = [name for name in kept if Path(place, name).is_symlink()]
        folders[:] = [name for name in kept if name not in linked]
        above = Path(place).relative_to(root).as_posix()
        # A worktree whose repository was removed still has a file `.git`.
        for name in [*(name for name in files if name != ".git"), *linked]:
            yield name if above == "." else f"{above}/{name}"


@dataclass(frozen=True, slots=True)
class WithoutLinks:
    """Whether a path is reached without a link: a directory known to git may be a link by now."""

    root: Path
    _known: dict[str, bool] = field(default_factory=lambda: {"": True})

    def holds(self, path: str) -> bool:
        """Whether no directory above the path is a link."""
        above = path.rpartition("/")[0]
        if above not in self._known:
            self._known[above] = self.holds(above) and not (self.root / above).is_symlink()
        return self._known[above]


def is_binary(content: bytes) -> bool:
    """Whether git calls the content binary: there is a NUL near its beginning."""
    return b"\0" in content[:BINARY_PREFIX]


def count_in_words(count: int, one: str, many: str, rest: str) -> str:
    """`3 files are left out`, with the verb that fits the count."""
    return f"{count:,} {one if count == 1 else many} {rest}"

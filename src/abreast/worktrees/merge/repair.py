"""Finds interrupted applies in and around a directory, and rolls them back or completes them.

Until then the tree is in neither its old nor its new state, and no plan may be made of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from abreast.worktrees.git import GitFailed
from abreast.worktrees.merge.apply import DONE, HOME, recover, stages
from abreast.worktrees.merge.git import git, names


def repair(root: Path) -> list[str]:
    """Roll back or complete every apply and undo that was killed; returns one line for each.

    Looks in `root`, in the directories above it that belong to the same repository, and in those
    beneath it that have files. Raises what `recover` raises.
    """
    found = []
    for place in [*_around(root.resolve()), *_beneath(root.resolve())]:
        lines = [_line(place, stage) for stage in stages(place)]
        if recover(place):
            found += lines
    return found


def _line(root: Path, stage: Path) -> str:
    what = "completed" if (stage / DONE).exists() else "taken back"
    return f"a merge into {root} had been cut off, and was {what}"


def _around(root: Path) -> list[Path]:
    """The directory, and those above it up to the top of its repository."""
    above = [root, *root.parents]
    top = next((place for place in above if (place / ".git").exists()), root)
    return above[: above.index(top) + 1]


def _beneath(root: Path) -> list[Path]:
    """The directories that have an `.abreast`.

    Git lists tracked files from its index, so those that were moved away are found too.
    """
    try:
        folders = _folders(names(git("ls-files", "-z", cwd=root).stdout))
    except GitFailed:
        folders = [Path(place).relative_to(root).as_posix() for place, _, _ in os.walk(root)]
    return [
        root / folder for folder in folders if folder != "." and (root / folder / HOME).is_dir()
    ]


def _folders(paths: Iterable[str]) -> list[str]:
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return sorted(found)

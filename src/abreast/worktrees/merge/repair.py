"""Finds interrupted applies in and around a directory, and rolls them back or completes them.

Until then the tree is in neither its old nor its new state, and no plan may be made of it.
"""

import os
from pathlib import Path

from abreast.worktrees.git import GitFailed, names, run_git
from abreast.worktrees.merge.apply import DONE, HOME, recover, stages
from abreast.worktrees.merge.names import folders_above


def repair(root: Path) -> list[str]:
    """Roll back or complete every apply and undo that was killed; returns one line for each.

    Looks in `root`, in the directories above it that belong to the same repository, and in those
    beneath it that have files. Raises what `recover` raises.
    """
    found = []
    above = [root.resolve(), *root.resolve().parents]
    top = next((place for place in above if (place / ".git").exists()), above[0])
    for place in [*above[: above.index(top) + 1], *_beneath(above[0])]:
        lines = [
            f"a merge into {place} had been cut off, and was "
            f"{'completed' if (stage / DONE).exists() else 'taken back'}"
            for stage in stages(place)
        ]
        if recover(place):
            found += lines
    return found


def _beneath(root: Path) -> list[Path]:
    """The directories that have an `.abreast`.

    Git lists tracked files from its index, so those that were moved away are found too.
    """
    try:
        paths = names(run_git("ls-files", "-z", cwd=root).stdout)
        # Of each directory once: there are more files than directories.
        nearest = {path.rpartition("/")[0] for path in paths}
        folders = sorted({each for folder in nearest for each in folders_above(f"{folder}/")})
    except GitFailed:
        folders = [Path(place).relative_to(root).as_posix() for place, _, _ in os.walk(root)]
    return [
        root / folder for folder in folders if folder != "." and (root / folder / HOME).is_dir()
    ]

"""Cleans up after plans whose driver was killed."""

from __future__ import annotations

from pathlib import Path

from abreast.cli.errors import tell
from abreast.core.errors import AbreastError
from abreast.jobs.plan.work.held_results import rescue
from abreast.worktrees.pool import has_pools, reap_worktrees


def clear_leftovers(root: Path) -> None:
    """Hold what killed drivers have left in worktrees of the repository of `root`, remove these, and say what is held.

    What can't be held is left as it is; a directory that can't be written to is no reason not to
    look at a plan.
    """
    try:
        if not has_pools(root):
            return
        for each in rescue(root):
            tell(
                f"{each.leaf} of {each.run} was cut off; what it had done is kept: "
                f"git --git-dir {each.home} ls-tree -r {each.tree}"
            )
        reap_worktrees(root)
    except (OSError, AbreastError) as error:
        tell(f"worktrees of a plan that was cut off could not be removed: {error}")

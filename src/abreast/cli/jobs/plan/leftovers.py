"""Cleans up the worktrees of plans whose driver was killed."""

from pathlib import Path

from abreast.cli.errors import tell
from abreast.core.errors import AbreastError
from abreast.jobs.plan.work.held_results import rescue
from abreast.worktrees.pool import has_pools, reap_worktrees


def clear_leftovers(root: Path) -> None:
    """Save the results that killed drivers left in worktrees of `root`, and remove the worktrees.

    Prints what is saved. Worktrees that can't be saved are left as they are, and errors are only
    printed: a plan can be shown in a read-only directory too.
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

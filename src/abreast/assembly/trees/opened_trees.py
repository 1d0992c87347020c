"""The worktrees of a run: opened before it, lent to its items, cleared up after a kill."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from abreast.assembly.process_groups import end_leftovers
from abreast.run.current import CurrentItem
from abreast.store.port import Store
from abreast.store.rows import busy
from abreast.system.paths import make_ignored_folder
from abreast.worktrees.merge.apply import HOME
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.pool import Worktrees, open_worktrees
from abreast.worktrees.results.held_results import clear_leftovers
from abreast.worktrees.results.item_trees import WORKTREES, ItemTrees


def snapshots_of(path: str) -> Snapshots:
    """The snapshots of a directory's runs, in its folder for runs."""
    home = Path(path) / HOME
    make_ignored_folder(home)
    return Snapshots(home / "plan.git")


@dataclass(frozen=True, slots=True)
class OpenedTrees:
    """The copies of a directory, and the snapshot that they start from."""

    pool: Worktrees
    snapshots: Snapshots
    base: str

    def of_run(
        self,
        run: str,
        name: Callable[[CurrentItem], str] = lambda item: item.key,
        lane: str = WORKTREES,
    ) -> ItemTrees:
        """The worktrees of the items of a run; `name` is what an item's result is kept under."""
        return ItemTrees(self.snapshots, self.base, run, name=name, lane=lane)


async def open_trees(
    stack: AsyncExitStack,
    path: str,
    count: int,
    notify: Callable[[str], None],
    *,
    store: Store | None = None,
    resumed_run: str | None = None,
    executor: str = "local",
) -> OpenedTrees:
    """Make so many copies of a directory, which end with the stack.

    What killed runs have left is cleared up first: processes, which would still write, and
    worktrees, whose content is kept. Raises `RunBusy` if the run to resume has a driver.
    """
    if resumed_run is not None and store is not None:
        if store.driven(resumed_run):
            raise busy(store.get(resumed_run))
        await end_leftovers(store, resumed_run)
    snapshots = await asyncio.to_thread(snapshots_of, path)
    await asyncio.to_thread(clear_leftovers, Path(path), notify)
    trees = await stack.enter_async_context(
        open_worktrees(path, count, own_git=True, executor=executor)
    )
    for failure in trees.failures:
        notify(f"worktree {failure.index} could not be made: {failure.reason}")
    for note in trees.notes:
        notify(printable(note))
    first = trees.slots[0]
    base = await asyncio.to_thread(snapshots.take, first.root, git_dir=first.git_dir)
    return OpenedTrees(trees, snapshots, base)

"""A worktree for each item of a map: prepared when work begins, kept as a commit when it ends."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from abreast.run.current import CurrentItem, current_item
from abreast.worktrees.git import GitFailed
from abreast.worktrees.merge.apply import put
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.results.held_results import HeldResults, begin
from abreast.worktrees.slot import Slot

WORKTREES: Final = "worktrees"
"""The lane that lends worktrees to items."""
MAX_PATCH: Final = 1 << 20  # characters of a patch that a record has; the commit has all of it


@dataclass(frozen=True, slots=True)
class TreeResult:
    """What work has made of its worktree."""

    base: str
    """The snapshot that it started from."""
    result: str
    commit: str
    changed: tuple[str, ...]
    patch: str
    """A unified diff; empty if nothing was changed, or it is too long for a record."""

    def plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "base": self.base,
            "result": self.result,
            "commit": self.commit,
            "changed": list(self.changed),
            "patch": self.patch,
        }


@dataclass(frozen=True, slots=True)
class ItemStart:
    """Where the work of an item starts."""

    name: str
    """What its result is kept under."""
    base: str
    """What its result is compared with."""
    tree: str
    """What its worktree is at first."""


class ItemTrees:
    """The worktrees of one run: each item works in the slot that it holds on the lane.

    Call `enter` before work and `keep` after it, or `rescue` if it failed; all of them from the
    item itself.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        base: str,
        run: str,
        *,
        name: Callable[[CurrentItem], str] = lambda item: item.key,
        lane: str = WORKTREES,
    ) -> None:
        """`base` is the snapshot of the slots; `name` is what an item's result is kept under.

        `lane` is the lane that lends the slots.
        """
        self.snapshots = snapshots
        self.base = base
        self._run = run
        self._name = name
        self._lane = lane
        self._held = HeldResults(snapshots)
        self._inside: dict[int, tuple[str, int]] = {}  # the item, and attempt, in each slot
        self._trees: dict[str, str] = {}  # the newest tree of an item
        self._starts: dict[str, ItemStart] = {}  # of items that do not start at the base

    def start_at(self, name: str, base: str | None = None, tree: str | None = None) -> None:
        """Let the current item go on where another has ended, and keep its result as `name`.

        `base` is where that one started, `tree` what it left; by default the base of all.
        """
        base = base or self.base
        self._starts[current().path] = ItemStart(name, base, tree or base)

    def base_of(self, path: str) -> str:
        """The snapshot that the item at `path` is compared with."""
        start = self._starts.get(path)
        return self.base if start is None else start.base

    def slot(self) -> Slot:
        """The worktree that the current item holds."""
        found = current().held.get(self._lane)
        if not isinstance(found, Slot):
            raise TypeError(f"{current().path} works in a worktree, and holds none")
        return found

    async def enter(self, *, fresh: bool) -> Slot:
        """Prepare the item's worktree: as the source was, or as the item left it last."""
        item, slot = current(), self.slot()
        here = (item.path, item.attempt)
        start = self._start(item)
        known = start.tree if fresh else self._trees.get(item.path, start.tree)
        if fresh or self._inside.get(slot.index) != here:
            await slot.reset()
            if known != self.base:
                await asyncio.to_thread(put, self.snapshots, slot.root, known)
            self._inside[slot.index] = here
        begin(slot, self.snapshots, self._run, start.name, start.tree)
        return slot

    async def keep(self, message: str) -> TreeResult:
        """Keep what is in the item's worktree, as a commit on top of its base."""
        item, slot = current(), self.slot()
        found = await asyncio.to_thread(self._keep, slot, self._start(item), message)
        self.remember(item.path, found.result)
        slot.let_go()
        return found

    def leave(self) -> None:
        """Note that something else than the item's work has used its worktree, such as a check.

        The next `enter` makes it again what the work has left.
        """
        self._inside.pop(self.slot().index, None)

    def remember(self, path: str, tree: str) -> None:
        """Note the newest tree of an item, also one that an earlier driver recorded."""
        self._trees[path] = tree

    def take_up(self, path: str) -> bool:
        """Let an item go on in what a killed driver has left of its worktree; False if nothing."""
        name = self._start(current()).name
        cut_off = [one for one in self._held.held(self._run) if one.leaf == name]
        found = next((one.tree for one in reversed(cut_off) if one.how == "cut-off"), None)
        if found is None or any(one.how == "done" for one in cut_off):
            return False
        self.remember(path, found)
        return True

    def rescue(self, how: Literal["failed", "cut-off"] = "failed") -> str | None:
        """Keep what failed work has left in its worktree; return its tree, None if it is as before.

        What is kept as `cut-off` is taken up by a resumed run.

        Without an await: after a cancellation the worktree goes to another item at once.
        """
        item, slot = current(), self.slot()
        start, tree = self._start(item), None
        # The work may have destroyed its worktree; its own failure matters more than that.
        with suppress(GitFailed, OSError):
            tree = self.snapshots.take(slot.root, git_dir=slot.git_dir)
            if tree != start.tree:
                self._held.hold(self._run, start.name, how, tree)
        slot.let_go()
        return None if tree == start.tree else tree

    def _start(self, item: CurrentItem) -> ItemStart:
        return self._starts.get(item.path) or ItemStart(self._name(item), self.base, self.base)

    def _keep(self, slot: Slot, start: ItemStart, message: str) -> TreeResult:
        snapshots, base, name = self.snapshots, start.base, start.name
        tree = snapshots.take(slot.root, git_dir=slot.git_dir)
        changed = tuple(one.path for one in snapshots.changes(base, tree).changed)
        self._held.hold(self._run, name, "done", tree)
        commit = snapshots.commit(tree, snapshots.commit(base, None, "The source"), message)
        patch = ""
        if changed:
            patch = snapshots.patch(base, tree, (), "-p", "--full-index", "--binary")
        if len(patch) > MAX_PATCH or not _is_text(patch):
            patch = ""
        return TreeResult(base, tree, commit, changed, patch)


def _is_text(patch: str) -> bool:
    """Whether it can be recorded: bytes that are no UTF-8 stand in it as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in patch)


def current() -> CurrentItem:
    """The item that works; raises RuntimeError outside of one."""
    item = current_item()
    if item is None:
        raise RuntimeError("a worktree is lent to an item of a map")
    return item

"""Runs the work of a subplan in a worktree, and keeps its result however the work ends."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias

from abreast.jobs.plan.errors import SubplanFailed
from abreast.jobs.plan.job import Work
from abreast.jobs.plan.spec import PlanNode
from abreast.jobs.plan.work.assignment import Assignment, PartRequest
from abreast.run.current import current_item
from abreast.worktrees.git import GitFailed
from abreast.worktrees.merge.apply import put
from abreast.worktrees.merge.merge import Change, Outside, WriteRules, merge
from abreast.worktrees.merge.snapshots import SeenTree, Snapshots
from abreast.worktrees.results.held_results import HeldResults, begin
from abreast.worktrees.results.item_trees import WORKTREES
from abreast.worktrees.slot import Slot

Task: TypeAlias = Callable[[Assignment], Awaitable[dict[str, Any]]]
"""Does the work; its value is recorded with the result."""


@dataclass(frozen=True, slots=True)
class StartTrees:
    """What subplans start from: a snapshot, and the results of the subplans that each one needs."""

    base: str
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For each leaf all that it needs, in the order of the plan (`job.all_needs`)."""
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The values of done subplans, as `run_plan` fills them in."""
    rules: WriteRules | None = None
    """Who may write what. A write outside is left out: its owner is to be asked for it."""

    def tree(self, leaf: str, snapshots: Snapshots) -> str:
        """The snapshot that a leaf starts from."""
        given = [(name, self.done[name]) for name in self.needs.get(leaf, ())]
        changes = [Change(name, value["base"], value["result"]) for name, value in given]
        if not changes:
            return self.base
        return merge(
            snapshots, self.base, changes, ownership=self.rules, outside=Outside.REQUEST
        ).tree


@dataclass(slots=True)
class RoundRequests:
    """What other subplans ask of each leaf in the round that is under way."""

    number: int = 1
    requests: Mapping[str, tuple[PartRequest, ...]] = field(default_factory=dict)

    def facts(self, leaf: str, *, changed: bool) -> dict[str, Any]:
        """What the value of a leaf records of them.

        They count as answered if its result has `changed` since the round before: work that does
        not look at requests gives the same result again.
        """
        if self.number == 1:
            return {}
        asked = [{"by": each.by, "file": each.file} for each in self.requests.get(leaf, ())]
        return {"round": self.number, "requests": asked, "answered": changed}


def in_worktrees(
    task: Task,
    snapshots: Snapshots,
    start: StartTrees,
    run: str,
    instruction: str = "",
    *,
    asked: RoundRequests | None = None,
) -> Work:
    """The work of a leaf: `task` in the worktree that its item holds, then a snapshot of it.

    However the task ends, the content of the worktree is kept by a reference; a failure has it in
    its details. A leaf that runs again in another round (`asked`) starts from where it began.
    """
    asked = RoundRequests() if asked is None else asked
    kept = HeldResults(snapshots)
    locks: defaultdict[int, Lock] = defaultdict(Lock)
    seen: dict[int, SeenTree] = {}

    def take_snapshot(slot: Slot) -> str:
        """The tree of a worktree.

        One snapshot at a time, because an interrupted one continues in its thread.
        """
        with locks[slot.index]:
            known = seen.setdefault(slot.index, SeenTree(slot.scratch / f"index-{slot.index}"))
            return snapshots.take(slot.root, known, slot.git_dir)

    async def work(leaf: PlanNode) -> dict[str, Any]:
        slot = _slot()
        await slot.reset()
        base = await asyncio.to_thread(start.tree, leaf.id, snapshots)
        earlier = start.done.get(leaf.id, {}).get("result")
        if base != start.base:
            await asyncio.to_thread(put, snapshots, slot.root, base)
            await slot.begin_here()
        begin(slot, snapshots, run, leaf.id, base)
        try:
            facts = await task(
                Assignment(
                    leaf.id,
                    leaf.scope,
                    leaf.files,
                    instruction,
                    slot.root,
                    slot.scratch,
                    leaf.instructions,
                    asked.requests.get(leaf.id, ()),
                )
            )
            tree = await asyncio.to_thread(take_snapshot, slot)
            changed = await asyncio.to_thread(snapshots.changes, base, tree)
        except BaseException as error:
            # Without an await: after a cancellation the worktree goes to another subplan at once.
            # The task may have destroyed its worktree; its own failure matters more than that.
            with suppress(GitFailed, OSError):
                tree = take_snapshot(slot)
                if tree != base:
                    kept.hold(run, leaf.id, "failed", tree)
                    if isinstance(error, SubplanFailed):
                        error.details |= {"base": base, "result": tree}
            slot.let_go()
            raise
        kept.hold(run, leaf.id, "done", tree)
        slot.let_go()
        return {
            "base": base,
            "result": tree,
            "files": list(leaf.files),
            "changed": [one.path for one in changed.changed],
            **asked.facts(leaf.id, changed=tree != earlier),
            **facts,
        }

    return work


def _slot() -> Slot:
    item = current_item()
    slot = item.held.get(WORKTREES) if item is not None else None
    if not isinstance(slot, Slot):
        raise TypeError(f"a subplan works in a worktree, not in {slot!r}")
    return slot

"""The worktrees of a workflow: for each item of a fan-out, or each step, that asks for one."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from abreast.agents.caller import AgentCaller
from abreast.agents.trees import TreePlaces
from abreast.assembly.trees.opened_trees import OpenedTrees, open_trees
from abreast.jobs.plan.review.tree_runs import TREE, TREE_ENTERED
from abreast.jobs.workflow.dry_run import widest
from abreast.jobs.workflow.load.analysis import every
from abreast.jobs.workflow.spec import FanOut, Workflow
from abreast.jobs.workflow.steps.values import RUN_WIDTH
from abreast.jobs.workflow.tools import AgentResult, CannotDo, TreeStart
from abreast.store.port import Store
from abreast.worktrees.results.item_trees import ItemTrees, current

_SUBJECT = "A step's work"


def has_worktrees(workflow: Workflow) -> bool:
    """Whether any of its steps, or of the files that it calls, works in a worktree."""
    return any(step.common.worktree for step in every(workflow.steps))


def worktree_count(workflow: Workflow, inputs: Mapping[str, Any], width: int | None) -> int:
    """How many steps may work in worktrees at once, as far as file and inputs decide it."""
    steps = tuple(every(workflow.steps))
    count = widest(workflow.steps, inputs)
    if any(one.common.needs is not None and one.common.worktree for one in steps):
        single = [one for one in steps if one.common.worktree and not isinstance(one, FanOut)]
        count = max(count, len(single))
    return min(count, width or RUN_WIDTH)


async def open_workflow_trees(
    stack: AsyncExitStack,
    workflow: Workflow,
    inputs: Mapping[str, Any],
    path: str,
    notify: Callable[[str], None],
    *,
    width: int | None = None,
    store: Store | None = None,
    resumed_run: str | None = None,
) -> OpenedTrees | None:
    """Make the worktrees of a workflow; None if none of its steps asks for one."""
    if not has_worktrees(workflow):
        return None
    count = worktree_count(workflow, inputs, width)
    return await open_trees(stack, path, count, notify, store=store, resumed_run=resumed_run)


@dataclass(frozen=True, slots=True)
class WorkflowTrees:
    """The worktrees of one run of a workflow, each held by the step that works in it."""

    trees: ItemTrees

    def start(self, at: TreeStart) -> None:
        """Say where the current step begins; its part of the merge is recorded."""
        self.trees.start_at(at.part, at.base, at.after)
        current().note(TREE_ENTERED, part=at.part)

    async def run(
        self, at: TreeStart, cwd: str | None, work: Callable[[str], Awaitable[AgentResult]]
    ) -> AgentResult:
        """Run a command in the worktree of the current step, and keep what it made of it.

        `work` gets the directory. `CannotDo` if `cwd` leads out of the worktree.
        """
        if cwd is not None and (PurePath(cwd).is_absolute() or ".." in PurePath(cwd).parts):
            raise CannotDo(f"the cwd {cwd!r} leads out of the step's worktree")
        self.start(at)
        slot = await self.trees.enter(fresh=True)
        try:
            result = await work(str(Path(slot.root, cwd or "")))
            kept = None if result.exit_code else await self.trees.keep(_SUBJECT)
        except BaseException:
            self.trees.rescue()
            raise
        if kept is None:
            self.trees.rescue()
            return result
        return result._replace(facts={**result.facts, TREE: kept.plain()})

    def place(self, caller: AgentCaller) -> None:
        """Let an agent work in the worktrees of its steps, where it may edit."""
        caller.agent.places = TreePlaces(self.trees)
        caller.restored, caller.cut_off = self.trees.remember, self.trees.take_up
        caller.agent.allow = caller.agent.allow or ("edit",)

"""Items that are worked on by an agent, or in worktrees, or both."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from abreast.agents.caller import AgentCaller
from abreast.assembly.process_groups import RUN_VARIABLE, ProcessGroups
from abreast.assembly.trees.agents import (
    ChosenAgent,
    agent_value,
    held_lane,
    open_agent,
    place_agent,
)
from abreast.assembly.trees.opened_trees import OpenedTrees, open_trees
from abreast.cli.errors import one_line, tell
from abreast.cli.jobs.agent_options import check_installed, find_chosen
from abreast.cli.jobs.map.command import CommandWork
from abreast.cli.jobs.map.job import MapJob
from abreast.executors.commands import CommandRunner
from abreast.executors.names import open_commands
from abreast.jobs.plan.review.tree_manifest import TREES
from abreast.jobs.plan.review.tree_runs import TREE
from abreast.limits.budget import Budget
from abreast.limits.lane import LaneLimits
from abreast.limits.pool import Pool
from abreast.models.port import Request
from abreast.run.current import current
from abreast.store.port import Store
from abreast.worktrees.results.item_trees import WORKTREES, ItemTrees


def agent_options(job: MapJob) -> ChosenAgent:
    """The agent of a job; raises `UsageError` if there is none of that name."""
    found = find_chosen(job.agent or "", job.allow, job.model, job.cwd)
    return replace(found, lanes=job.lanes)


def check_agent(job: MapJob) -> None:
    """Raise `UsageError` for errors of an agent that are visible before anything starts."""
    check_installed(agent_options(job).runner, job.cwd)
    _ = job.question


class MapTrees:
    """Opens what such items need, and makes their work."""

    def __init__(
        self,
        job: MapJob,
        groups: ProcessGroups,
        *,
        quiet: bool,
        prepare: Callable[[AgentCaller], None],
    ) -> None:
        """`prepare` is called with the agent, before it is asked anything."""
        self._job, self._groups, self._quiet = job, groups, quiet
        self._prepare = prepare
        self._caller: AgentCaller | None = None
        self._opened: OpenedTrees | None = None
        self._commands: CommandRunner

    @property
    def hold(self) -> str | None:
        """The lane that lends worktrees."""
        return None if self._opened is None else WORKTREES

    @property
    def lane(self) -> str | None:
        """The lane of the agent, if it has limits: items wait for it, not inside of it."""
        caller = self._caller
        return caller.lane.name if caller is not None and held_lane(caller) else None

    async def open(
        self, stack: AsyncExitStack, store: Store | None, resumed_run: str | None
    ) -> dict[str, Any]:
        """Make the worktrees, and open the agent; return options of the run."""
        job = self._job
        lanes: dict[str, LaneLimits] = {}
        manifest = job.manifest()
        if job.worktree:
            self._opened = await open_trees(
                stack, job.cwd, job.width, self._notify, store=store, resumed_run=resumed_run
            )
            lanes[WORKTREES] = Pool(self._opened.pool.slots)
            manifest[TREES] = {"path": job.cwd, "task": job.prompt or " ".join(job.command)}
        self._commands = await open_commands(stack, "local")
        if job.agent is not None:
            options = agent_options(job)
            self._caller = await open_agent(stack, options, self._groups, self._commands)
            self._prepare(self._caller)
            lanes |= held_lane(self._caller)
            budgets = (Budget.parse(job.budget),) if job.budget else ()
            self._caller.reserve(Request(()), budgets)
        return {"budget": job.budget, "manifest": manifest, "lanes": lanes or None}

    def _notify(self, text: str) -> None:
        if not self._quiet:
            tell(one_line(text))

    def work(self, run: str) -> Callable[[Any], Awaitable[dict[str, Any]]]:
        """The work of an item, in a run that is open."""
        os.environ[RUN_VARIABLE] = run
        self._commands.adopt_environment()
        trees = None if self._opened is None else self._opened.of_run(run)
        caller = self._caller
        if caller is not None:
            job = self._job
            place_agent(caller, run, folder=job.cwd, trees=trees, allow=job.allow)
            return _AgentWork(job, caller)
        if trees is None:
            raise RuntimeError("a command without worktrees is no work of trees")
        return _CommandInTree(CommandWork(self._job, self._commands, self._groups), trees)


class _AgentWork:
    """Gives the job's prompt about an item to an agent; the value has its text and facts."""

    def __init__(self, job: MapJob, caller: AgentCaller) -> None:
        self._job, self._caller = job, caller

    async def __call__(self, value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
        """Run the agent once."""
        job = self._job
        reply = await self._caller.ask(
            job.question.fill(value, current())[0], system=job.system, schema=job.schema
        )
        return agent_value(reply)


class _CommandInTree:
    """Runs the job's command in the item's worktree; the value has its output and its tree."""

    def __init__(self, work: CommandWork, trees: ItemTrees) -> None:
        self._work, self._trees = work, trees

    async def __call__(self, value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
        """Run the command once."""
        slot = await self._trees.enter(fresh=True)
        try:
            found = await self._work.run_in(value, str(slot.root))
            tree = await self._trees.keep("A command's work")
        except BaseException:
            self._trees.rescue()
            raise
        return {**found, TREE: tree.plain()}

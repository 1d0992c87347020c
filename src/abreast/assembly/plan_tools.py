"""What a run of a plan works with: worktrees, snapshots, and the work of a subplan.

The command line and `abreast.plan` both drive it.
"""

import asyncio
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from abreast.agents.caller import AgentCaller
from abreast.assembly.process_groups import RUN_VARIABLE, ProcessGroups
from abreast.assembly.trees.agents import ChosenAgent, held_lane, open_agent
from abreast.assembly.trees.opened_trees import open_trees
from abreast.assembly.trees.plan_agent import AgentSubplan
from abreast.executors.commands import Commands
from abreast.executors.names import is_remote
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.score import dependencies, in_groups
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.job import PlanOptions, PlanResult, PlanRound, all_needs, run_plan
from abreast.jobs.plan.settings import PlanJob
from abreast.jobs.plan.spec import Plan
from abreast.jobs.plan.work.assignment import PartRequest
from abreast.jobs.plan.work.commands import CallTask, CommandTask, Processes
from abreast.jobs.plan.work.functions import FunctionTask, WorkFunction
from abreast.jobs.plan.work.in_worktrees import (
    RoundRequests,
    StartTrees,
    Task,
    in_worktrees,
)
from abreast.jobs.plan.work.on_node import TaskOnNode
from abreast.jobs.plan.work.ownership import Ownership
from abreast.jobs.plan.work.requests import find_requests
from abreast.jobs.plan.written.division import listed, written_needs
from abreast.jobs.plan.written.parts import read_parts
from abreast.jobs.plan.written.planner import PLANNER, propose_parts
from abreast.limits.lane import LaneLimits
from abreast.limits.pool import Pool
from abreast.models.port import Request
from abreast.run.calls.model import Caller
from abreast.run.run import Run
from abreast.store.port import Store
from abreast.worktrees.git import folder_in_repository
from abreast.worktrees.merge.listing import list_submodules
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.pool import Worktrees
from abreast.worktrees.results.item_trees import WORKTREES

PROGRAM: Final = "program"
"""The key of a manifest that is true if the work of subplans is a function of a program."""


def _asked_lines(number: int, requests: Mapping[str, Sequence[PartRequest]]) -> list[str]:
    return [
        f"round {number}: {leaf} is asked by {', '.join(sorted({each.by for each in asked}))} "
        f"for changes of {listed([*dict.fromkeys(each.file for each in asked)])}"
        for leaf, asked in requests.items()
    ]


class PlanTools:
    """Divides a directory, opens what its subplans need, and runs them.

    `plan` is there after `divide`; `snapshots` and `base`, the tree that subplans start from, after
    `open`.
    """

    plan: Plan
    snapshots: Snapshots
    base: str
    run_id: str
    """The run that results are kept for; a made-up name for a run in memory."""
    _trees: Worktrees
    _needs: dict[str, tuple[str, ...]] | None
    _caller: Caller | None = None
    _planner: Caller | None = None

    def __init__(
        self,
        job: PlanJob,
        *,
        open_caller: Callable[[str | None, Store | None], Caller],
        notify: Callable[[str], None],
        function: WorkFunction | None = None,
        groups: ProcessGroups | None = None,
        find_agent: Callable[[PlanJob], ChosenAgent] | None = None,
        prepare_agent: Callable[[AgentCaller], None] = lambda _caller: None,
    ) -> None:
        """Open nothing yet.

        `open_caller` opens a model by its name, or the default for None. `function` is the work of
        a subplan in this process, in place of the job's call. `groups` are told of processes.
        `find_agent` finds the agent that a job names; `prepare_agent` is called with its caller.
        """
        self._job, self._open_caller, self._notify = job, open_caller, notify
        self._function = function
        self._groups = groups or ProcessGroups()
        self._find_agent = find_agent
        self._prepare_agent = prepare_agent
        self._agent: AgentCaller | None = None

    @property
    def asks_model(self) -> bool:
        """Whether a model does the work of subplans."""
        job = self._job
        other = job.command or job.call or job.agent
        return other is None and self._function is None

    def divide(self, *, strict: bool = True) -> Imports:
        """Divide the directory, which blocks; raises `PlanInvalid` if it can't be divided.

        If not `strict`, parts may name files that are not there any more.
        """
        if shutil.which("git") is None:
            raise PlanInvalid("a plan needs git, which is not on the PATH")
        self.plan, imports = self._job.divide(strict=strict)
        ordered = self._job.order == "dependencies"
        self._needs = (
            in_groups(dependencies(self.plan, imports))
            if ordered
            else written_needs(self.plan, self._job.parts)
        )
        return imports

    async def open(
        self, stack: AsyncExitStack, store: Store | None, resumed_run: str | None
    ) -> dict[str, Any]:
        """Make the worktrees, and take a snapshot of the directory; return options of the run."""
        job = self._job
        opened = await open_trees(
            stack,
            job.path,
            self._most_at_once(),
            self._notify,
            store=store,
            resumed_run=resumed_run,
            executor=self._executor,
        )
        self._trees, self.snapshots, self.base = opened.pool, opened.snapshots, opened.base
        lanes: dict[str, LaneLimits] = {WORKTREES: Pool(self._trees.slots)}
        if self.asks_model:
            self._caller = await stack.enter_async_context(self._open_caller(job.model, store))
            lanes[self._caller.lane.name] = list(self._caller.lane.limits)
        if job.agent is not None and self._find_agent is not None:
            chosen = self._find_agent(job)
            self._agent = await open_agent(stack, chosen, self._groups)
            self._prepare_agent(self._agent)
            lanes |= held_lane(self._agent)
        if job.planner is not None:
            self._planner = await stack.enter_async_context(self._open_caller(job.planner, store))
            lanes.setdefault(self._planner.lane.name, list(self._planner.lane.limits))
        return {"budget": job.budget, "manifest": job.manifest(), "lanes": lanes}

    @property
    def _executor(self) -> str:
        """Where subplans are worked on; models are called from here."""
        return "local" if self.asks_model else self._job.executor or "local"

    def _most_at_once(self) -> int:
        """How many subplans can run at once; how many a model will propose is not known yet."""
        width = self._job.width
        return width if self._job.planner is not None else min(width, len(self.plan.leaves))

    async def _propose(self, run: Run, planner: Caller) -> None:
        """Replace the plan by what a model proposes; a recorded proposal is not made again."""
        plan, task = self.plan, self._job.prompt or self._job.command or ""

        async def ask(given: str) -> list[dict[str, Any]]:
            return await propose_parts(planner, plan, given)

        parts = read_parts(await run.step(PLANNER, ask, task))
        self._job = replace(self._job, parts=parts)
        await asyncio.to_thread(partial(self.divide, strict=False))
        self._notify(
            f"{planner.name} proposes {len(self.plan.leaves)} parts: "
            + listed([leaf.scope for leaf in self.plan.leaves])
        )

    async def work(self, run: Run, stack: AsyncExitStack) -> PlanResult:
        """Run the subplans."""
        if self._planner is not None:
            await self._propose(run, self._planner)
        job = self._job
        self.run_id = run.id or f"{run.name}-{secrets.token_hex(6)}"
        width = 1 if job.order == "sequential" else len(self._trees.slots)
        task = await self._task(stack)
        rules = await self._rules()
        start_state = StartTrees(self.base, all_needs(self.plan, self._needs or {}), rules=rules)
        asked = RoundRequests()
        work = in_worktrees(
            task, self.snapshots, start_state, self.run_id, job.prompt or "", asked=asked
        )
        how = PlanOptions(
            width,
            job.fail_fast,
            job.retries,
            job.timeout,
            WORKTREES,
            self._needs,
            lane=None if self._agent is None else next(iter(held_lane(self._agent)), None),
        )
        around, done = job.work_digest(), start_state.done
        result = await run_plan(run, self.plan, work, how, around, done=done)
        for number in range(2, job.rounds + 1):
            requests = await self._requests(done, rules) if result.ok else {}
            if not requests:
                break
            for line in _asked_lines(number, requests):
                self._notify(line)
            asked.number, asked.requests = number, requests
            which = PlanRound(number, requests)
            again = await run_plan(run, self.plan, work, how, around, done=done, which=which)
            result = result.with_round(again)
        return result

    async def _rules(self) -> Ownership:
        """Which subplan may write what."""
        submodules = await asyncio.to_thread(list_submodules, Path(self._job.path))
        leaves = {leaf.id: leaf.files for leaf in self.plan.leaves}
        return Ownership(leaves, submodules, self.plan.left_out)

    async def _requests(
        self, done: dict[str, dict[str, Any]], rules: Ownership
    ) -> dict[str, tuple[PartRequest, ...]]:
        # A copy without a git directory is no part of a repository.
        root = Path(self._job.path)
        folder = folder_in_repository(root) if self._trees.slots[0].git_dir is not None else ""
        return await asyncio.to_thread(
            find_requests, self.snapshots, self.plan, rules, done, folder
        )

    async def _task(self, stack: AsyncExitStack) -> Task:
        job, caller = self._job, self._caller
        if caller is not None:
            from abreast.jobs.plan.work.edit import EditTask

            request = Request(
                (),
                temperature=job.temperature,
                max_tokens=job.reply_tokens,
                reasoning=job.reasoning,
            )
            return EditTask(
                caller,
                Ownership.of(self.plan),
                repairs=job.repairs,
                request=request,
                asks=job.rounds > 1,
            )
        variables = {RUN_VARIABLE: self.run_id}
        if is_remote(self._executor):
            return TaskOnNode(WORKTREES, job.command, job.call, job.home, self._function, variables)
        if self._function is not None:
            return FunctionTask(self._function)
        if self._agent is not None:
            return AgentSubplan(self._agent, self.snapshots, self.run_id, job.allow)
        processes = Processes(
            await stack.enter_async_context(Commands()),
            self._groups.started,
            self._groups.ended,
            variables,
        )
        return (
            CallTask(job.call, job.home, processes)
            if job.call is not None
            else CommandTask(job.command or "", processes)
        )

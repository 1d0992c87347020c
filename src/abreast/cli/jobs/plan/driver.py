"""Drives a plan from its directory to its exit code."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from abreast.assembly.names import open_model, open_run
from abreast.cli.config import Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, tell
from abreast.cli.jobs.early_exit import STOPS, early_exit_by
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.map.driver import OutputOptions, enter_run
from abreast.cli.jobs.map.process_groups import RUN_VARIABLE, ProcessGroups, end_leftovers
from abreast.cli.jobs.plan.job import KIND, PlanJob
from abreast.cli.jobs.plan.leftovers import clear_leftovers
from abreast.cli.signals import Interrupts
from abreast.cli.stores import FOLDER, StoreChoice
from abreast.cli.terminal.tables import say_json, say_table
from abreast.executors.commands import Commands
from abreast.jobs.plan.decompose.score import dependencies, in_groups
from abreast.jobs.plan.errors import PlanFailed
from abreast.jobs.plan.job import PlanOptions, PlanResult, all_needs, run_plan
from abreast.jobs.plan.work.commands import CallTask, CommandTask, Processes
from abreast.jobs.plan.work.in_worktrees import WORKTREES, StartTrees, Task, in_worktrees
from abreast.jobs.plan.work.ownership import Ownership
from abreast.limits.budget import Budget
from abreast.limits.limit import Limit
from abreast.limits.pool import Pool
from abreast.models.port import Request
from abreast.run.calls.model import Caller
from abreast.run.run import Resume
from abreast.store.port import JsonValue, Store
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.pool import Worktrees, open_worktrees


@dataclass(frozen=True, slots=True)
class PlanStart:
    """Whether the run is new or resumed, and its name, seed and tags."""

    name: str
    seed: int | None = None
    tags: tuple[str, ...] = ()
    resume: Resume = "never"
    run_id: str | None = None


def snapshots_of(path: str) -> Snapshots:
    """The snapshots of a directory's plans, in its folder for runs."""
    home = Path(path) / FOLDER
    home.mkdir(exist_ok=True)
    if not (home / ".gitignore").exists():
        (home / ".gitignore").write_text("*\n")
    return Snapshots(home / "plan.git")


class PlanDriver:
    """Drives one run of a plan."""

    def __init__(self, job: PlanJob, choice: StoreChoice, view: OutputOptions) -> None:
        """Divide the directory; nothing starts before `run`.

        Raises `UsageError` if it can't be divided, or its work can't be done.
        """
        if shutil.which("git") is None:
            raise UsageError("a plan needs git, which is not on the PATH")
        self._job = job
        self._choice = choice
        self._view = view
        self._groups = ProcessGroups()
        self._run_id = ""
        if job.call is not None:
            find_function(job.call, job.home)
        elif job.command is None:
            self._check_model()
        self._plan, imports = job.current_plan()
        ordered = job.order == "dependencies"
        self._needs = in_groups(dependencies(self._plan, imports)) if ordered else None

    def _check_model(self) -> None:
        budgets = (Budget.parse(self._job.budget),) if self._job.budget else ()
        # The replies of a replay are in the store, which isn't open yet.
        if not (self._job.model or "").startswith("replay/"):
            self._open_model(None).reserve(Request(()), budgets)

    def _open_model(self, store: Store | None) -> Caller:
        from abreast.cli.jobs.map.prompt import configured_lanes, default_model

        config = Config.load(Path(self._job.home))
        try:
            return open_model(
                default_model(config, self._job.model), lanes=configured_lanes(config), store=store
            )
        except (ValueError, OSError) as error:
            raise UsageError(f"--model: {error}") from None

    def run(self, store: Store, start: PlanStart) -> int:
        """Run the plan; return the exit code."""
        with asyncio.Runner() as runner:
            return runner.run(self._drive(store, start))

    async def _drive(self, store: Store, start: PlanStart) -> int:
        found: list[PlanResult] = []
        with Interrupts(self._groups.kill) as interrupts:
            try:
                await self._open_and_run(store, start, interrupts, found)
            except PlanFailed:
                pass
            except STOPS as error:
                return early_exit_by(error, interrupts).tell(self._run_id, self._choice)
        return self._print_result(found[0])

    async def _open_and_run(
        self, store: Store, start: PlanStart, interrupts: Interrupts, found: list[PlanResult]
    ) -> None:
        job = self._job
        async with AsyncExitStack() as stack:
            if start.run_id is not None:
                await end_leftovers(store, start.run_id)
            snapshots = await asyncio.to_thread(snapshots_of, job.path)
            await asyncio.to_thread(clear_leftovers, Path(job.path))
            trees = await stack.enter_async_context(
                open_worktrees(job.path, min(job.width, len(self._plan.leaves)), own_git=True)
            )
            for failure in trees.failures:
                tell(f"worktree {failure.index} could not be made: {one_line(failure.reason)}")
            for note in trees.notes:
                tell(printable(note))
            first = trees.slots[0]
            base = await asyncio.to_thread(snapshots.take, first.root, git_dir=first.git_dir)
            caller = None
            if job.command is None and job.call is None:
                caller = await stack.enter_async_context(self._open_model(store))
            lanes: dict[str, Limit | list[Limit]] = {WORKTREES: Pool(trees.slots)}
            if caller is not None:
                lanes[caller.lane.name] = list(caller.lane.limits)
            run = open_run(
                start.name,
                store=store,
                budget=job.budget,
                seed=start.seed,
                tags=start.tags,
                kind=KIND,
                resume=start.resume,
                run_id=start.run_id,
                manifest=job.manifest(),
                lanes=lanes,
            )
            async with enter_run(run, interrupts):
                self._run_id = run.id or ""
                os.environ[RUN_VARIABLE] = self._run_id  # before Commands copies the environment
                task = await self._task(stack, caller)
                start_state = StartTrees(base, all_needs(self._plan, self._needs or {}))
                work = in_worktrees(task, snapshots, start_state, self._run_id, job.prompt or "")
                found.append(
                    await run_plan(
                        run,
                        self._plan,
                        work,
                        self._options(trees),
                        job.work_digest(),
                        done=start_state.done,
                    )
                )
                interrupts.stop_cancelling()
                if not found[0].ok:
                    missing = sum(one.state != "done" for one in found[0].subplans)
                    raise PlanFailed(f"{missing} subplans are not done")

    def _options(self, trees: Worktrees) -> PlanOptions:
        job = self._job
        width = 1 if job.order == "sequential" else len(trees.slots)
        return PlanOptions(width, job.fail_fast, job.retries, job.timeout, WORKTREES, self._needs)

    async def _task(self, stack: AsyncExitStack, caller: Caller | None) -> Task:
        job = self._job
        if caller is not None:
            from abreast.jobs.plan.work.edit import EditTask

            request = Request((), temperature=job.temperature, max_tokens=job.reply_tokens)
            return EditTask(caller, Ownership.of(self._plan), repairs=job.repairs, request=request)
        commands = await stack.enter_async_context(Commands())
        processes = Processes(commands, self._groups.started, self._groups.ended)
        if job.call is not None:
            return CallTask(job.call, job.home, processes)
        return CommandTask(job.command or "", processes)

    def _print_result(self, result: PlanResult) -> int:
        if self._view.json:
            say_json(
                {
                    "run": self._run_id,
                    "peak": result.peak,
                    "subplans": [_as_json(one) for one in result.subplans],
                }
            )
        elif not self._view.quiet:
            rows = [(one.leaf, one.state, one.attempts, one.error or "") for one in result.subplans]
            say_table(("subplan", "state", "attempts", "error"), rows)
            done = sum(one.state == "done" for one in result.subplans)
            more = (
                ""
                if result.ok
                else f"; the others again: abreast resume {self._run_id}{self._choice.flag}"
            )
            tell(
                f"{done} of {len(result.subplans)} subplans done, {result.peak} at once "
                f"({self._run_id}){more}"
            )
            if done:
                tell(f"merge them with: abreast plan apply {self._run_id}{self._choice.flag}")
        return DONE if result.ok else FAILED


def _as_json(one: Any) -> dict[str, JsonValue]:  # noqa: ANN401 - a frozen record
    return asdict(one)

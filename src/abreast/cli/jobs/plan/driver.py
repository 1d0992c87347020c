"""Drives a plan from its directory to its exit code."""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from abreast.cli.config import BUDGET, MODEL, Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, tell
from abreast.cli.jobs.driver import JobDriver, drive
from abreast.cli.jobs.job_file import JobFile
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.map.process_groups import RUN_VARIABLE, end_leftovers
from abreast.cli.jobs.model_options import configured_lanes, open_named
from abreast.cli.jobs.plan.job import KIND, PlanJob, clear_leftovers, print_plan, read_job
from abreast.cli.jobs.request import RunRequest, new_request
from abreast.cli.stores import FOLDER
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
from abreast.models.port import Request, full_name
from abreast.run.calls.model import Caller
from abreast.run.run import Run
from abreast.store.port import RunRow, Store
from abreast.store.rows import busy
from abreast.worktrees.merge.names import printable
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.pool import Worktrees, open_worktrees


def snapshots_of(path: str) -> Snapshots:
    """The snapshots of a directory's plans, in its folder for runs."""
    home = Path(path) / FOLDER
    home.mkdir(exist_ok=True)
    if not (home / ".gitignore").exists():
        (home / ".gitignore").write_text("*\n")
    return Snapshots(home / "plan.git")


class PlanDriver(JobDriver):
    """Drives one run of a plan."""

    kind = KIND
    _trees: Worktrees
    _snapshots: Snapshots
    _base: str
    _caller: Caller | None = None
    _result: PlanResult

    def __init__(self, job: PlanJob, request: RunRequest, file: str = "") -> None:
        super().__init__(request)
        self._job = job
        self._file = file
        self._resumed_run = request.run_id

    @classmethod
    def of_file(cls, given: JobFile) -> int:
        """Drive the plan of a file; return the exit code."""
        flags, config = given.flags, Config.load()
        own = {"model": flags["model"], "budget": config.get(BUDGET, flags["budget"])}
        job = read_job(given.file, given.node.pairs[KIND][1], own)
        request = new_request(config, flags["name"] or KIND, flags)
        return drive(cls(job, request, given.file), request)

    @classmethod
    def of_run(
        cls, request: RunRequest, row: RunRow, changes: Mapping[str, Any], _inputs: Sequence[str]
    ) -> Self:
        """The driver of a recorded run, with another budget if one is given."""
        return cls(PlanJob.of_run(row, changes["budget"]), request)

    def print_dry_run(self) -> int:
        """Print the tree of subplans."""
        return print_plan(*self._job.current_plan(), as_json=self.view.json)

    def print_checked(self) -> int:
        """Say that the directory can be divided, if JSON is wanted."""
        self._job.current_plan()
        if self.view.json:
            say_json({"file": self._file, "ok": True})
        return DONE

    def check(self) -> None:
        """Divide the directory; raise `UsageError` if it can't be, or its work can't be done."""
        job = self._job
        if shutil.which("git") is None:
            raise UsageError("a plan needs git, which is not on the PATH")
        if job.call is not None:
            find_function(job.call, job.home)
        # The replies of a replay are in the store, which isn't open yet.
        elif job.command is None and not full_name(job.model or "").startswith("replay/"):
            budgets = (Budget.parse(job.budget),) if job.budget else ()
            self._open_model(None).reserve(Request(()), budgets)
        self._plan, imports = job.current_plan()
        ordered = job.order == "dependencies"
        self._needs = in_groups(dependencies(self._plan, imports)) if ordered else None

    def _open_model(self, store: Store | None) -> Caller:
        config = Config.load(Path(self._job.home))
        return open_named(config.get(MODEL, self._job.model), configured_lanes(config), store)

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Make the worktrees, and take a snapshot of the directory."""
        job = self._job
        # They would still write into the directory. A run that has a driver keeps its processes.
        if self._resumed_run is not None and store is not None:
            if store.driven(self._resumed_run):
                raise busy(store.get(self._resumed_run))
            await end_leftovers(store, self._resumed_run)
        self._snapshots = await asyncio.to_thread(snapshots_of, job.path)
        await asyncio.to_thread(clear_leftovers, Path(job.path))
        self._trees = trees = await stack.enter_async_context(
            open_worktrees(job.path, min(job.width, len(self._plan.leaves)), own_git=True)
        )
        for failure in trees.failures:
            tell(f"worktree {failure.index} could not be made: {one_line(failure.reason)}")
        for note in trees.notes:
            tell(printable(note))
        first = trees.slots[0]
        self._base = await asyncio.to_thread(
            self._snapshots.take, first.root, git_dir=first.git_dir
        )
        lanes: dict[str, Limit | list[Limit]] = {WORKTREES: Pool(trees.slots)}
        if job.command is None and job.call is None:
            self._caller = await stack.enter_async_context(self._open_model(store))
            lanes[self._caller.lane.name] = list(self._caller.lane.limits)
        return {"budget": job.budget, "manifest": job.manifest(), "lanes": lanes}

    async def work(self, run: Run, stack: AsyncExitStack) -> None:
        """Run the subplans."""
        job = self._job
        os.environ[RUN_VARIABLE] = self.run_id  # before Commands copies the environment
        width = 1 if job.order == "sequential" else len(self._trees.slots)
        task = await self._task(stack)
        start_state = StartTrees(self._base, all_needs(self._plan, self._needs or {}))
        work = in_worktrees(task, self._snapshots, start_state, self.run_id, job.prompt or "")
        self._result = await run_plan(
            run,
            self._plan,
            work,
            PlanOptions(width, job.fail_fast, job.retries, job.timeout, WORKTREES, self._needs),
            job.work_digest(),
            done=start_state.done,
        )

    def unfinished(self) -> PlanFailed | None:
        """A run with subplans that are not done has failed."""
        missing = sum(one.state != "done" for one in self._result.subplans)
        return None if self._result.ok else PlanFailed(f"{missing} subplans are not done")

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
            return EditTask(caller, Ownership.of(self._plan), repairs=job.repairs, request=request)
        processes = Processes(
            await stack.enter_async_context(Commands()), self.groups.started, self.groups.ended
        )
        return (
            CallTask(job.call, job.home, processes)
            if job.call is not None
            else CommandTask(job.command or "", processes)
        )

    def print_result(self) -> int:
        """Print the state of each subplan; return the exit code."""
        result = self._result
        if self.view.json:
            say_json(
                {
                    "run": self.run_id,
                    "peak": result.peak,
                    "subplans": [asdict(one) for one in result.subplans],
                }
            )
        elif not self.view.quiet:
            rows = [(one.leaf, one.state, one.attempts, one.error or "") for one in result.subplans]
            say_table(("subplan", "state", "attempts", "error"), rows)
            done = sum(one.state == "done" for one in result.subplans)
            more = (
                ""
                if result.ok
                else f"; the others again: abreast resume {self.run_id}{self.choice.flag}"
            )
            tell(
                f"{done} of {len(result.subplans)} subplans done, {result.peak} at once "
                f"({self.run_id}){more}"
            )
            if done:
                tell(f"merge them with: abreast plan apply {self.run_id}{self.choice.flag}")
        return DONE if result.ok else FAILED

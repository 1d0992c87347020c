"""Drives a plan from its directory to its exit code."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from abreast.assembly.plan_tools import PROGRAM, PlanTools
from abreast.assembly.trees.agents import ChosenAgent
from abreast.cli.config import BUDGET, MODEL, Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, refusing, tell
from abreast.cli.jobs.agent_options import check_installed, find_chosen
from abreast.cli.jobs.driver import JobDriver, drive
from abreast.cli.jobs.executors import check_executor
from abreast.cli.jobs.job_file import JobFile
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.model_options import configured_lanes, open_named
from abreast.cli.jobs.plan.job import (
    current_plan,
    print_plan,
    read_job,
    recorded_job,
    repair_tree,
)
from abreast.cli.jobs.request import RunRequest, check_wait, new_request
from abreast.cli.terminal.live_line import LiveLine
from abreast.cli.terminal.tables import say_json, say_table
from abreast.jobs.plan.errors import PlanFailed, PlanInvalid
from abreast.jobs.plan.job import PlanResult
from abreast.jobs.plan.settings import KIND, PlanJob
from abreast.jobs.plan.view import PlanLive
from abreast.limits.budget import Budget
from abreast.models.port import Request, full_name
from abreast.run.calls.model import Caller
from abreast.run.run import Run
from abreast.store.port import RunRow, Store


def _find_agent(job: PlanJob) -> ChosenAgent:
    return find_chosen(job.agent or "", job.allow, job.model, job.home)


class PlanDriver(JobDriver):
    """Drives one run of a plan."""

    kind = KIND
    takes_wait = True
    _result: PlanResult

    def __init__(self, job: PlanJob, request: RunRequest, file: str = "") -> None:
        super().__init__(request)
        self._job = job
        self._file = file
        self._resumed_run = request.run_id
        self._tools = PlanTools(
            job,
            open_caller=self._open_model,
            notify=lambda text: tell(one_line(text)),
            groups=self.groups,
            find_agent=_find_agent,
            prepare_agent=self.wait_for_limits,
        )

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
        if row.manifest.get(PROGRAM):
            raise UsageError(
                f"the subplans of {row.id} are done by a function of a Python program: "
                "start that again, and it goes on with this run"
            )
        return cls(recorded_job(row, changes["budget"]), request)

    def print_dry_run(self) -> int:
        """Print the tree of subplans."""
        return print_plan(*current_plan(self._job), as_json=self.view.json)

    def print_checked(self) -> int:
        """Say that the directory can be divided, if JSON is wanted."""
        current_plan(self._job)
        if self.view.json:
            say_json({"file": self._file, "ok": True})
        return DONE

    def check(self) -> None:
        """Divide the directory; raise `UsageError` if it can't be, or its work can't be done."""
        job = self._job
        check_wait(job.agent, wait=self.wait)
        check_executor(job.executor or "local")
        if job.call is not None:
            find_function(job.call, job.home)
        elif job.agent is not None:
            check_installed(_find_agent(job).runner, job.home)
        # The replies of a replay are in the store, which isn't open yet.
        elif job.command is None and not full_name(job.model or "").startswith("replay/"):
            budgets = (Budget.parse(job.budget),) if job.budget else ()
            self._open_model(job.model, None).reserve(Request(()), budgets)
        if job.planner is not None and not full_name(job.planner).startswith("replay/"):
            self._open_model(job.planner, None)
        if Path(job.path).is_dir():
            repair_tree(Path(job.path))
        with refusing("", PlanInvalid):
            self._tools.divide(strict=self._resumed_run is None)
        for note in () if self.view.quiet else self._tools.plan.notes:
            tell(one_line(note))

    def _open_model(self, name: str | None, store: Store | None) -> Caller:
        config = Config.load(Path(self._job.home))
        return open_named(config.get(MODEL, name), configured_lanes(config), store)

    def live_line(self, _store: Store | None) -> LiveLine | None:
        """The subplans that are done and running; none beside JSON."""
        return None if self.view.json else LiveLine(PlanLive())

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Make the worktrees, and take a snapshot of the directory."""
        return await self._tools.open(stack, store, self._resumed_run)

    async def work(self, run: Run, stack: AsyncExitStack) -> None:
        """Run the subplans."""
        self._result = await self._tools.work(run, stack)

    def unfinished(self) -> PlanFailed | None:
        """A run with subplans that are not done has failed."""
        missing = sum(one.state != "done" for one in self._result.subplans)
        return None if self._result.ok else PlanFailed(f"{missing} subplans are not done")

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
            again = any(one.round > 1 for one in result.subplans)
            rows = [
                (
                    one.leaf,
                    one.state,
                    one.attempts,
                    *((one.round,) if again else ()),
                    one.error or "",
                )
                for one in result.subplans
            ]
            rounds = ("round",) if again else ()
            say_table(("subplan", "state", "attempts", *rounds, "error"), rows)
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

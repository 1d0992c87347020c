"""`abreast resume`: resumes a run from its manifest and its journal."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final

import click

from abreast.cli import options
from abreast.cli.config import BUDGET, RETRIES, TIMEOUT, WIDTH, Config
from abreast.cli.errors import UsageError, tell
from abreast.cli.jobs.map.driver import OutputOptions
from abreast.cli.jobs.map.job import KIND, MapJob
from abreast.cli.jobs.map.recorded import tally
from abreast.cli.jobs.resume import resume_map
from abreast.cli.stores import StoreChoice, find_run, state_of
from abreast.core.run_end import is_over
from abreast.run.run import Resume
from abreast.store.port import RunRow, Store

_UNFINISHED = ("crashed", "interrupted", "spent", "failed", "halted", "paused")


@click.command("resume")
@options.optional_run
@click.option(
    "--retry-failed",
    "--only-failed",
    is_flag=True,
    help="Run failed items again, also of a run that ended.",
)
@click.option(
    "--input",
    "-i",
    "inputs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Of a workflow: another value of an input, or what a gate waits for, as GATE=approve.",
)
@options.width
@options.retries
@options.timeout
@options.budget
@options.quiet
@options.common
def command(
    *,
    run: str | None,
    retry_failed: bool,
    inputs: tuple[str, ...],
    width: str | None,
    retries: str | None,
    timeout: str | None,
    budget: str | None,
    quiet: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Go on with RUN; without it, with the newest run that did not end.

    What is recorded is not run again: its results are printed as they were, and the rest follows.
    Options that are not given are as they were. A budget counts what was spent before.
    """
    config = Config.load()
    choice = StoreChoice(config, store)
    with choice.existing() as opened:
        row = (
            find_run(opened, run) if run is not None else newest_unfinished(opened, {KIND, *_JOBS})
        )
        if row is None:
            tell("nothing to resume: no run is waiting to go on")
            return 0
        if is_over(row.state, row.reason) and not retry_failed and not inputs:
            return _print_ended(opened, row, choice)
        if row.kind in _JOBS:
            raised = None if budget is None else config.get(BUDGET, budget)
            wider = None if width is None else config.get(WIDTH, width)
            view = OutputOptions(as_json, quiet, options.is_verbose())
            request = ResumeRequest(opened, row, choice, view, raised, inputs, retry_failed, wider)
            return _JOBS[row.kind](request)
        changes = {
            "width": None if width is None else config.get(WIDTH, width),
            "retries": None if retries is None else config.get(RETRIES, retries),
            "timeout": None if timeout is None else config.get(TIMEOUT, timeout),
            "budget": None if budget is None else config.get(BUDGET, budget),
        }
        job = MapJob.of_run(row).with_changes(**changes)
        how: Resume = "retry" if retry_failed else "must"
        return resume_map(opened, row, job, choice, resume=how, as_json=as_json, quiet=quiet)


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """A run to resume, and the options of the resume."""

    store: Store
    row: RunRow
    choice: StoreChoice
    view: OutputOptions
    budget: str | None
    inputs: tuple[str, ...]
    retry: bool
    width: int | None = None

    def no_inputs(self) -> None:
        """Raise `UsageError` if inputs are given: only workflows have them."""
        if self.inputs:
            raise UsageError(f"--input is for workflows, and {self.row.id} is a {self.row.kind}")


def _sample(request: ResumeRequest) -> int:
    from abreast.cli.jobs.sample import SampleDriver, SampleStart

    request.no_inputs()
    driver = SampleDriver.of_run(request.row, request.choice, request.view, request.budget)
    driver.check()
    return driver.run(
        request.store, SampleStart(request.row.name, resume="must", run_id=request.row.id)
    )


def _workflow(request: ResumeRequest) -> int:
    from abreast.cli.jobs.workflow.resume import resume_workflow

    return resume_workflow(
        request.store,
        request.row,
        request.choice,
        request.view,
        request.inputs,
        retry=request.retry,
        budget=request.budget,
        width=request.width,
    )


def _matrix(request: ResumeRequest) -> int:
    from abreast.cli.jobs.matrix.resume import resume_study

    request.no_inputs()
    return resume_study(
        request.store,
        request.row,
        request.choice,
        request.view,
        retry=request.retry,
        budget=request.budget,
    )


def _plan(request: ResumeRequest) -> int:
    from abreast.cli.jobs.plan.driver import PlanDriver, PlanStart
    from abreast.cli.jobs.plan.job import PlanJob

    request.no_inputs()
    start = PlanStart(
        request.row.name, resume="retry" if request.retry else "failed", run_id=request.row.id
    )
    return PlanDriver(
        PlanJob.of_run(request.row, request.budget), request.choice, request.view
    ).run(request.store, start)


def _candidates(request: ResumeRequest) -> int:
    from abreast.cli.jobs.candidates.driver import CandidatesDriver, CandidatesStart

    request.no_inputs()
    driver = CandidatesDriver.of_run(request.row, request.choice, request.view, request.budget)
    return driver.run(
        request.store,
        CandidatesStart(
            request.row.name, resume="retry" if request.retry else "failed", run_id=request.row.id
        ),
    )


_JOBS: Final[dict[str, Callable[[ResumeRequest], int]]] = {
    "sample": _sample,
    "workflow": _workflow,
    "matrix": _matrix,
    "plan": _plan,
    "candidates": _candidates,
}
"""The function that resumes a run of each kind; each imports its own modules."""


def newest_unfinished(store: Store, kinds: Container[str]) -> RunRow | None:
    """The newest run of these kinds that can be resumed; None if there is none."""
    ours = (row for row in store.runs(limit=1000) if row.kind in kinds)
    return next(
        (
            row
            for row in ours
            if state_of(store, row) in _UNFINISHED and not is_over(row.state, row.reason)
        ),
        None,
    )


def _print_ended(store: Store, row: RunRow, choice: StoreChoice) -> int:
    failed = tally(store, row.id).failed
    if failed and row.kind in (KIND, "workflow", "plan", "matrix"):
        words = f"retry {row.id}" if row.kind == KIND else f"resume {row.id} --only-failed"
        again = f"run those again with: abreast {words}{choice.flag}"
        tell(f"{row.id} is {row.state}, with {failed} failed; {again}")
    else:
        tell(f"{row.id} is {row.state}; see its results with: abreast export {row.id}{choice.flag}")
    return 0

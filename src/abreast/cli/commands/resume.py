"""`abreast resume`: go on with a run, from what its manifest and its journal say."""

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
from abreast.cli.jobs.resume import drive_again
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
            return _over(opened, row, choice)
        if row.kind in _JOBS:
            raised = None if budget is None else config.get(BUDGET, budget)
            wider = None if width is None else config.get(WIDTH, width)
            view = OutputOptions(as_json, quiet, options.is_verbose())
            again = Again(opened, row, choice, view, raised, inputs, retry_failed, wider)
            return _JOBS[row.kind](again)
        changes = {
            "width": None if width is None else config.get(WIDTH, width),
            "retries": None if retries is None else config.get(RETRIES, retries),
            "timeout": None if timeout is None else config.get(TIMEOUT, timeout),
            "budget": None if budget is None else config.get(BUDGET, budget),
        }
        job = MapJob.of_run(row).but(**changes)
        how: Resume = "retry" if retry_failed else "must"
        return drive_again(opened, row, job, choice, resume=how, as_json=as_json, quiet=quiet)


@dataclass(frozen=True, slots=True)
class Again:
    """A run of a job that goes on, and with what."""

    store: Store
    row: RunRow
    choice: StoreChoice
    view: OutputOptions
    budget: str | None
    inputs: tuple[str, ...]
    retry: bool
    width: int | None = None

    def no_inputs(self) -> None:
        """Refuse inputs where there are none."""
        if self.inputs:
            raise UsageError(f"--input is for workflows, and {self.row.id} is a {self.row.kind}")


def _sample(again: Again) -> int:
    from abreast.cli.jobs.sample import SampleStart, Sampling

    again.no_inputs()
    sampling = Sampling.of_run(again.row, again.choice, again.view, again.budget)
    sampling.check()
    return sampling.run(
        again.store, SampleStart(again.row.name, resume="must", run_id=again.row.id)
    )


def _workflow(again: Again) -> int:
    from abreast.cli.jobs.workflow.resume import resume_flow

    return resume_flow(
        again.store,
        again.row,
        again.choice,
        again.view,
        again.inputs,
        retry=again.retry,
        budget=again.budget,
        width=again.width,
    )


def _matrix(again: Again) -> int:
    from abreast.cli.jobs.matrix.resume import resume_study

    again.no_inputs()
    return resume_study(
        again.store, again.row, again.choice, again.view, retry=again.retry, budget=again.budget
    )


def _plan(again: Again) -> int:
    from abreast.cli.jobs.plan.driver import Planning, PlanStart
    from abreast.cli.jobs.plan.job import PlanJob

    again.no_inputs()
    start = PlanStart(
        again.row.name, resume="retry" if again.retry else "failed", run_id=again.row.id
    )
    return Planning(PlanJob.of_run(again.row, again.budget), again.choice, again.view).run(
        again.store, start
    )


def _candidates(again: Again) -> int:
    from abreast.cli.jobs.candidates.driver import OptimizeStart, Optimizing

    again.no_inputs()
    optimizing = Optimizing.of_run(again.row, again.choice, again.view, again.budget)
    return optimizing.run(
        again.store,
        OptimizeStart(
            again.row.name, resume="retry" if again.retry else "failed", run_id=again.row.id
        ),
    )


_JOBS: Final[dict[str, Callable[[Again], int]]] = {
    "sample": _sample,
    "workflow": _workflow,
    "matrix": _matrix,
    "plan": _plan,
    "candidates": _candidates,
}
"""How the runs of each kind of job go on; each loads its own modules."""


def newest_unfinished(store: Store, kinds: Container[str]) -> RunRow | None:
    """The newest run of these kinds that waits to go on; None if there is none."""
    ours = (row for row in store.runs(limit=1000) if row.kind in kinds)
    return next(
        (
            row
            for row in ours
            if state_of(store, row) in _UNFINISHED and not is_over(row.state, row.reason)
        ),
        None,
    )


def _over(store: Store, row: RunRow, choice: StoreChoice) -> int:
    failed = tally(store, row.id).failed
    if failed and row.kind in (KIND, "workflow", "plan", "matrix"):
        again = f"retry {row.id}" if row.kind == KIND else f"resume {row.id} --only-failed"
        tell(
            f"{row.id} is {row.state}, with {failed} failed; run those again with: abreast {again}{choice.flag}"
        )
    else:
        tell(f"{row.id} is {row.state}; see its results with: abreast export {row.id}{choice.flag}")
    return 0

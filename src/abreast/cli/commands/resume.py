"""`abreast resume`: resumes a run from its manifest and its journal."""

from collections.abc import Container, Mapping
from typing import Any

import click

from abreast.cli import options
from abreast.cli.config import BUDGET, RETRIES, TIMEOUT, WIDTH, Config, ConfigSetting
from abreast.cli.errors import UsageError, tell
from abreast.cli.jobs.driver import WAIT, drive
from abreast.cli.jobs.left_trees import clear_left_trees, folder_of_run
from abreast.cli.jobs.map.recorded import tally
from abreast.cli.jobs.model_options import read_wait
from abreast.cli.jobs.request import RunRequest, output_options
from abreast.cli.jobs.table import JOBS
from abreast.cli.stores import StoreChoice, find_run, state_of
from abreast.core.run_end import is_over
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
@click.option(
    "--batch-wait",
    metavar="TIME",
    help="Wait so long for batches before the run is left again; 0 to ask for them once.",
)
@options.wait
@options.width
@options.retries
@options.timeout
@options.budget
@options.quiet
@options.common
def command(*, run: str | None, store: str | None, retry_failed: bool, **given: Any) -> int:
    """Go on with RUN; without it, with the newest run that did not end.

    What is recorded is not run again: its results are printed as they were, and the rest follows.
    Options that are not given are as they were. A budget counts what was spent before.
    """
    config = Config.load()
    choice = StoreChoice(config, store)
    with choice.existing() as opened:
        row = find_run(opened, run) if run is not None else newest_unfinished(opened, JOBS)
        if row is None:
            clear_left_trees()
            tell("nothing to resume: no run is waiting to go on")
            return 0
        if is_over(row.state, row.reason) and not retry_failed and not given["inputs"]:
            clear_left_trees(folder_of_run(row))
            return _print_ended(opened, row, choice)
        if row.kind == "serve":
            raise UsageError(
                f"{row.id} is a server's: go on with: abreast serve --resume {row.id}{choice.flag}"
            )
        job = JOBS[row.kind if row.kind in JOBS else "map"].load()
        if given["inputs"] and not job.takes_inputs:
            raise UsageError(f"--input is for workflows, and {row.id} is a {row.kind}")
        if given["wait"] and not job.takes_wait:
            raise UsageError(f"--wait is for runs of agents, and {row.id} is a {row.kind}")
        request = resume_request(
            row, given, choice=choice, store=opened, resume=job.resume_modes[retry_failed]
        )
        return drive(job.of_run(request, row, changes_of(config, given), given["inputs"]), request)


def resume_request(row: RunRow, given: Mapping[str, Any], **how: Any) -> RunRequest:
    """The request to go on with a recorded run; `how` are its store, mode and keys."""
    wait = bool(given.get("wait") or row.manifest.get(WAIT))
    return RunRequest(view=output_options(given), name=row.name, run_id=row.id, wait=wait, **how)


def changes_of(config: Config, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a resume; None for those that are not given."""
    words: dict[str, ConfigSetting[Any]] = {
        "width": WIDTH,
        "retries": RETRIES,
        "timeout": TIMEOUT,
        "budget": BUDGET,
    }
    changes: dict[str, Any] = {
        word: None if given.get(word) is None else config.get(setting, given[word])
        for word, setting in words.items()
    }
    return {**changes, "batch_wait": read_wait(given.get("batch_wait"))}


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
    failed = tally(store, row.id)["failed"]
    again = JOBS[row.kind].retried_by if failed and row.kind in JOBS else None
    if again is not None:
        words = f"run those again with: abreast {again.format(run=row.id)}{choice.flag}"
        tell(f"{row.id} is {row.state}, with {failed} failed; {words}")
    else:
        tell(f"{row.id} is {row.state}; see its results with: abreast export {row.id}{choice.flag}")
    return 0

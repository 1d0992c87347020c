"""The table of jobs: which file holds which job, and where its driver is."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from abreast.core.frozen import record

if TYPE_CHECKING:
    from abreast.cli.jobs.driver import JobDriver

_WORKFLOW_FLAGS: Final = ("inputs", "simulate", "outputs_of")


@record(frozen=True, slots=True)
class JobEntry:
    """A job: its driver, its file, and what `abreast run`, `resume` and `schema` do with it."""

    driver: str
    """The driver's class, as `module:Class`; imported when it is needed."""
    file_keys: tuple[str, ...] = ()
    """A file with one of these top-level keys holds this job."""
    alone: bool = True
    """Whether a file may have no other top-level key."""
    refused: tuple[str, ...] = ()
    """The flags of `abreast run` that this job does not have."""
    refusal: str = ""
    """Why, after the flag; {file} is the file."""
    retried_by: str | None = None
    """The command that runs failed items of an ended run again; {run} is the run's id."""
    schema: str | None = None
    """The function that returns the JSON Schema of its file, as `module:function`."""
    part: str | None = None
    """The record beneath each item that belongs to its result, such as the reply of a cell."""

    def load(self) -> type[JobDriver]:
        """Import the driver's class."""
        return find_name(self.driver)  # type: ignore[no-any-return]


def find_name(place: str) -> Any:  # noqa: ANN401 - a class or a function
    """What is called so in its module: `module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


_AGAIN: Final = "resume {run} --only-failed"

JOBS: Final[Mapping[str, JobEntry]] = {
    "workflow": JobEntry(
        "abreast.cli.jobs.workflow.driver:WorkflowDriver",
        ("workflow", "steps"),
        alone=False,
        retried_by=_AGAIN,
        schema="abreast.jobs.workflow.load.step_words:workflow_schema",
    ),
    "sample": JobEntry(
        "abreast.cli.jobs.sample:SampleDriver",
        ("sample",),
        refused=(*_WORKFLOW_FLAGS, "executor"),
        refusal="is for workflows, and {file} holds a sample",
    ),
    "matrix": JobEntry(
        "abreast.cli.jobs.matrix.driver:MatrixDriver",
        ("matrix",),
        alone=False,
        refused=("check_only", "simulate", "outputs_of", "name", "wait"),
        refusal="is not for a matrix; `abreast matrix run --help` says what is",
        retried_by=_AGAIN,
        part="reply",
    ),
    "plan": JobEntry(
        "abreast.cli.jobs.plan.driver:PlanDriver",
        ("plan",),
        refused=(*_WORKFLOW_FLAGS, "executor", "warm"),
        refusal="is for workflows, and {file} holds a plan",
        retried_by=_AGAIN,
        schema="abreast.jobs.plan.settings:plan_schema",
    ),
    "candidates": JobEntry(
        "abreast.cli.jobs.candidates.driver:CandidatesDriver",
        ("candidates",),
        refused=(*_WORKFLOW_FLAGS, "warm"),
        refusal="is for workflows, and {file} holds candidates",
    ),
    "map": JobEntry("abreast.cli.jobs.map.driver:MapDriver", retried_by="retry {run}"),
}
"""All jobs; a file is looked up in this order."""

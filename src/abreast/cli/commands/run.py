"""`abreast run FILE`: runs a job file, whose top-level key says which job it is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from abreast.cli import options
from abreast.cli.config import BUDGET, SEED, WIDTH, Config
from abreast.cli.errors import UsageError, one_line, os_error_text
from abreast.cli.jobs.map.driver import OutputOptions
from abreast.cli.stores import LAST, StoreChoice
from abreast.core.errors import WorkflowInvalid

if TYPE_CHECKING:
    from abreast.jobs.files.yaml_nodes import YamlNode
    from abreast.jobs.sample.spec import SampleSpec

_MAX_FILE_BYTES: Final = 5 << 20  # of a job file
_RUN_ID_VARIABLE: Final = "SPECKIT_WORKFLOW_RUN_ID"
"""The environment variable by which users of spec-kit set the id of a workflow's run."""
_JOBS: Final = ("workflow", "sample", "matrix", "plan", "candidates")


@click.command("run")
@click.option(
    "--input",
    "-i",
    "inputs",
    metavar="NAME=VALUE",
    multiple=True,
    help="An input of a workflow, or GATE=approve; may be repeated.",
)
@click.option("--check", is_flag=True, help="Only say what is wrong with the file.")
@options.dry_run
@click.option(
    "--simulate",
    is_flag=True,
    help="Rehearse a workflow: outputs are made up, nothing is done or recorded.",
)
@click.option(
    "--outputs-of",
    metavar="RUN",
    help="With --simulate: take outputs from that run where it has them.",
)
@click.option(
    "--model", "-m", metavar="NAME", help="The model for prompts that name none.  [local/smollm2]"
)
@click.option(
    "--width",
    "-w",
    metavar="N",
    help="Steps of a workflow at once, in all.  [64, or as many as its widest fan-out]",
)
@options.budget
@click.option(
    "--name",
    metavar="TEXT",
    help="What the run is called; by default the workflow's id, or the job's kind.",
)
@click.option(
    "--tag",
    "tags",
    metavar="WORD",
    multiple=True,
    help="A word to find the run by; may be repeated.",
)
@click.option("--seed", metavar="N", help="Makes it repeatable; drawn if not given.")
@options.quiet
@options.common
@click.argument("file", metavar="FILE")
def command(*, file: str, width: str | None, **given: Any) -> int:
    """Run the job in FILE. A top-level key says which job it is.

    \b
      workflow: {id: hello}
      steps:
        - {id: list, type: shell, run: "ls *.md"}
        - {id: sum, type: prompt, prompt: "What are these? {{ steps.list.output.stdout }}"}

    \b
      sample:
        prompt: Name a colour.
        checks: ["regex ^(red|green|blue)$"]
        breadth: 4
    """  # noqa: D301 - click wants the character itself
    text = read_text(file)
    node = read_node(text, file)
    if "workflow" in node.pairs or "steps" in node.pairs:
        return _run_workflow(file, text, width=width, **given)
    if width is not None:
        raise UsageError(
            f"--width is for workflows here; the file {file} has words of its own for that"
        )
    if "matrix" in node.pairs:
        return _run_matrix(file, text, **given)
    if list(node.pairs) == ["plan"]:
        from abreast.cli.jobs.plan.file import run_file

        return run_file(file, node.pairs["plan"][1], **given)
    if list(node.pairs) == ["candidates"]:
        return _run_candidates(file, node.plain()["candidates"], **given)
    if list(node.pairs) != ["sample"]:
        raise UsageError(
            f"{file}:1: a job file says by a top-level key what it is: {', '.join(_JOBS)}"
        )
    return _run_sample(file, node.plain()["sample"], **given)


def read_text(file: str) -> str:
    """A job file's text; raises `UsageError` if it can't be read."""
    try:
        with Path(file).open("rb") as opened:
            found = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} can't be read ({os_error_text(error)})") from None
    if len(found) > _MAX_FILE_BYTES:
        raise UsageError(
            f"{file} has more than {_MAX_FILE_BYTES >> 20} MiB, which no job file needs"
        )
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8; convert it") from None


def read_node(text: str, file: str) -> YamlNode:
    """The file's YAML nodes; raises `UsageError` with the line of an error."""
    from abreast.jobs.files.problems import Problems
    from abreast.jobs.files.yaml_nodes import read_yaml

    report = Problems(file)
    node = read_yaml(text, report)
    try:
        report.settled()
    except WorkflowInvalid as error:
        raise UsageError(str(error)) from None
    if node is None or node.kind != "mapping":
        raise UsageError(
            f"{file}:1: a job file is a mapping, and says by a top-level key what it is: "
            f"{', '.join(_JOBS)}"
        )
    return node


def _run_workflow(
    file: str,
    text: str,
    *,
    inputs: tuple[str, ...],
    name: str | None,
    width: str | None,
    **given: Any,
) -> int:
    from abreast.cli.jobs.sample import check_run_name
    from abreast.cli.jobs.workflow.driver import (
        WorkflowDriver,
        WorkflowFile,
        WorkflowStart,
        split_inputs,
    )

    config, cwd = Config.load(), os.getcwd()  # noqa: PTH109 - stored as text
    view = OutputOptions(given["as_json"], given["quiet"], options.is_verbose())
    budget = config.get(BUDGET, given["budget"])
    most = None if width is None else config.get(WIDTH, width)
    source = WorkflowFile(
        file,
        text,
        str(Path(file).resolve().parent),
        budget=budget,
        model=given["model"],
        width=most,
    )
    workflow = source.workflow()
    if given["check"]:
        from abreast.cli.jobs.workflow.check import check_runners, check_tables
        from abreast.cli.jobs.workflow.dry_run import print_checked
        from abreast.cli.jobs.workflow.runners import check_arguments

        check_tables(workflow, config)
        check_arguments(workflow, config)
        check_runners(workflow, config)
        return print_checked(workflow, as_json=view.json)
    values, verdicts = split_inputs(inputs, workflow)
    source = source.with_more(values, verdicts)
    run_id = None if name else _run_id_from_environment()
    name = name or run_id or workflow.id
    check_run_name(name)
    driver = WorkflowDriver(
        source,
        StoreChoice(config, given["store"]),
        view,
        cwd=cwd,
        inputs_needed=not given["dry_run"],
    )
    if given["dry_run"]:
        from abreast.cli.jobs.workflow.dry_run import print_dry_run

        return print_dry_run(driver, config, as_json=view.json)
    driver.print_warnings()
    start = WorkflowStart(name, config.get(SEED, given["seed"]), given["tags"], run_id=run_id)
    if given["simulate"] or given["outputs_of"]:
        from abreast.cli.jobs.workflow.dry_run import rehearsal_of

        return driver.run(
            None, start, rehearsal_of(StoreChoice(config, given["store"]), given["outputs_of"])
        )
    with StoreChoice(config, given["store"]).open() as store:
        return driver.run(store, start)


def _run_id_from_environment() -> str | None:
    """The run's id from the environment; None if it is the id of the run that started this one."""
    from abreast.cli.jobs.map.process_groups import RUN_VARIABLE

    given = os.environ.get(_RUN_ID_VARIABLE, "").strip()
    if not given or given == os.environ.get(RUN_VARIABLE):
        return None
    if given == LAST or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", given):
        rule = (
            "letters, digits, _ and -, the first a letter or a digit; "
            f"and {LAST!r} stands for the newest run"
        )
        raise UsageError(
            f"{_RUN_ID_VARIABLE}: {given!r} can't be the id of a run, which has {rule}"
        )
    return given


def _run_matrix(file: str, text: str, *, model: str | None, **given: Any) -> int:
    from abreast.cli.commands.matrix import run_study

    for flag in ("check", "simulate", "outputs_of", "name"):
        if given[flag]:
            raise UsageError(
                f"--{flag.replace('_', '-')} is not for a matrix; "
                "`abreast matrix run --help` says what is"
            )
    return run_study(file, text, models=(model,) if model else (), **given)


def _run_candidates(file: str, facts: object, *, inputs: tuple[str, ...], **given: Any) -> int:
    from abreast.cli.commands.optimize import run_candidates

    for flag in ("simulate", "outputs_of"):
        if given[flag]:
            raise UsageError(
                f"--{flag.replace('_', '-')} is for workflows, and {file} holds candidates"
            )
    if inputs:
        raise UsageError(f"--input is for workflows, and {file} holds candidates")
    if not isinstance(facts, dict):
        raise UsageError(f"{file}: candidates must be a mapping, with a target and tests in it")
    return run_candidates(facts, "optimize", given, where=f"{file}: candidates")


def _run_sample(
    file: str, facts: object, *, inputs: tuple[str, ...], name: str | None, **given: Any
) -> int:
    from abreast.cli.jobs.sample import (
        SampleDriver,
        SampleStart,
        check_run_name,
        print_dry_run,
        seed_of,
    )

    for flag in ("simulate", "outputs_of"):
        if given[flag]:
            raise UsageError(
                f"--{flag.replace('_', '-')} is for workflows, and {file} holds a sample"
            )
    if inputs:
        raise UsageError(f"--input is for workflows, and {file} holds a sample")
    config = Config.load()
    check_run_name(name or "sample")
    spec = _sample_spec(file, facts, given)
    view = OutputOptions(given["as_json"], given["quiet"], options.is_verbose())
    cwd = os.getcwd()  # noqa: PTH109 - stored as text
    driver = SampleDriver(spec, StoreChoice(config, given["store"]), view, cwd=cwd)
    if given["dry_run"]:
        return print_dry_run(driver, as_json=given["as_json"])
    driver.check()
    if given["check"]:
        return 0
    start = SampleStart(
        name or "sample", seed=seed_of(spec, config.get(SEED, given["seed"])), tags=given["tags"]
    )
    with driver.store() as store:
        return driver.run(store, start)


def _sample_spec(file: str, facts: object, given: dict[str, Any]) -> SampleSpec:
    from abreast.jobs.sample.spec import SampleSpec

    if not isinstance(facts, dict):
        raise UsageError(f"{file}: sample must be a mapping, with a prompt in it")
    own = {word: given[word] for word in ("model", "budget") if given[word] is not None}
    try:
        return SampleSpec.of({**facts, **own}, f"{file}: sample")
    except (ValueError, TypeError) as error:
        raise UsageError(one_line(str(error))) from None

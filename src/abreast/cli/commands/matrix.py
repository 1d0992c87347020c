"""`abreast matrix`: runs, scores and reports studies of models x strategies x inputs x repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from abreast.cli import options, units
from abreast.cli.config import BUDGET, SEED, Config
from abreast.cli.errors import UsageError
from abreast.cli.jobs.map.driver import OutputOptions
from abreast.cli.stores import StoreChoice
from abreast.run.run import Resume
from abreast.store.port import RunRow, Store


@click.group("matrix")
def command() -> None:
    """Run a study: models x strategies x inputs x repeats; score it, report it, compare two."""


selection_options = options.group_of(
    click.option(
        "--model",
        "-m",
        "models",
        metavar="NAME",
        multiple=True,
        help="Only this model; may be repeated.",
    ),
    click.option(
        "--strategy",
        "strategies",
        metavar="NAME",
        multiple=True,
        help="Only this one; may be repeated.",
    ),
    click.option(
        "--input",
        "-i",
        "inputs",
        metavar="ID",
        multiple=True,
        help="Only this input; may be repeated.",
    ),
    click.option("--repeats", metavar="N", help="Only the first so many repeats."),
    click.option(
        "--lane-width",
        "--provider-concurrency",
        "lane_width",
        metavar="N",
        help="At most so many requests at once per provider, or for some: "
        "openai=8,anthropic=2.  [4]",
    ),
)


every_row = click.option(
    "--all", "every", is_flag=True, help="Also cells that are no longer in the study's file."
)
no_report = click.option("--no-report", is_flag=True, help="Write no report at the end.")


@command.command("run")
@selection_options
@click.option("--rerun-failed", is_flag=True, help="Run failed cells again, too.")
@click.option("--no-resume", is_flag=True, help="Start a new run, whatever is recorded.")
@options.dry_run
@options.budget
@click.option(
    "--adaptive",
    is_flag=True,
    help="Let lanes find out how wide they can be; --lane-width is their cap.",
)
@no_report
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
def run(*, file: str, **given: Any) -> int:
    """Run the study in FILE, or go on with it: cells that are recorded are not run again.

    Cells go by their content. An edited prompt runs again in its cells alone, and which these are
    is said beforehand. At the end the report is written to .abreast/reports, beside the store.
    """
    from abreast.cli.commands.run import read_text

    return run_study(file, read_text(file), **given)


def run_study(file: str, text: str, **given: Any) -> int:
    """Run a study's file; return the exit code."""
    from abreast.cli.jobs.matrix.driver import MatrixDriver, StudyFile

    config = Config.load()
    choice = StoreChoice(config, given["store"])
    view = OutputOptions(given["as_json"], given["quiet"], options.is_verbose())
    width, repeats = given.get("lane_width"), given.get("repeats")
    if width is not None and "=" not in width:
        width = _number("--lane-width", width)
    repeats = None if repeats is None else _number("--repeats", repeats)
    source = StudyFile(
        file,
        text,
        str(Path(file).resolve().parent),
        width,
        config.get(BUDGET, given["budget"]),
        list(given.get("models", ())),
        list(given.get("strategies", ())),
        list(given.get("inputs", ())),
        repeats,
        bool(given.get("adaptive")),
    )
    driver = MatrixDriver(source, choice, view, report=not given.get("no_report"))
    if given["dry_run"]:
        from abreast.cli.jobs.matrix.dry_run import print_dry_run

        with choice.look() as looked:
            return print_dry_run(driver, looked, as_json=view.json)
    seed = config.get(SEED, given["seed"])
    with choice.open() as store:
        row = None if given.get("no_resume") else _newest(store, driver.study.name)
        resume: Resume = (
            "never" if row is None else "retry" if given.get("rerun_failed") else "must"
        )
        return driver.run(store, row=row, resume=resume, seed=seed, tags=given["tags"])


def _number(flag: str, given: str) -> int:
    try:
        return units.number(given, least=1)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


def _newest(store: Store, name: str) -> RunRow | None:
    row = store.newest(name)
    return row if row is not None and row.kind == "matrix" else None


@command.command("report")
@click.option(
    "--out", metavar="FILE", help="Where to write it: .html or .md.  [RUN.html in .abreast/reports]"
)
@every_row
@options.common
@options.run
def report(*, run: str, out: str | None, every: bool, store: str | None, as_json: bool) -> int:
    """Write the report of RUN: one page that works offline, or Markdown."""
    from abreast.cli.jobs.matrix.report import write_report

    return write_report(run, out, StoreChoice(Config.load(), store), every=every, as_json=as_json)


@command.command("score")
@no_report
@options.quiet
@options.common
@click.argument("file", metavar="FILE")
def score(*, file: str, no_report: bool, store: str | None, as_json: bool, quiet: bool) -> int:
    """Score the replies of FILE's study again, by the scores that it has now.

    No model is asked, except judges.
    """
    from abreast.cli.commands.run import read_text
    from abreast.cli.jobs.matrix.report import rescore

    view = OutputOptions(as_json, quiet, options.is_verbose())
    return rescore(
        file, read_text(file), StoreChoice(Config.load(), store), view, report=not no_report
    )


@command.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    default="jsonl",
    show_default=True,
)
@click.option("--out", metavar="FILE", help="Where to write it; stdout if not given.")
@every_row
@options.store
@options.verbose
@options.run
def export(*, run: str, form: str, out: str | None, every: bool, store: str | None) -> int:
    """Write the rows of RUN: one for each cell."""
    from abreast.cli.jobs.matrix.report import export_rows

    return export_rows(run, form, out, StoreChoice(Config.load(), store), every=every)


@command.command("compare")
@options.common
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
def compare(*, first: str, second: str, store: str | None, as_json: bool) -> int:
    """Compare two runs, cell by cell."""
    from abreast.cli.jobs.matrix.report import compare_runs

    return compare_runs(first, second, StoreChoice(Config.load(), store), as_json=as_json)


@command.command("init")
@options.verbose
@click.argument("file", metavar="FILE", default="study.yaml")
def init(*, file: str) -> int:
    """Write a small study to begin with, with its inputs beside it."""
    from abreast.cli.jobs.matrix.init import write_study

    return write_study(file)

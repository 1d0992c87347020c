"""`abreast matrix`: runs, scores and reports studies of models x strategies x inputs x repeats."""

from pathlib import Path
from typing import Any, Final

import click

from abreast.cli import options
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, os_error_text, tell
from abreast.cli.stores import StoreChoice


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
verdict_options = options.group_of(
    click.option(
        "--fail-under",
        "fail_under",
        metavar="[[STRATEGY:]SCORE=]X",
        multiple=True,
        help="Exit code 1 if a mean is less than X: of all scores and arms, or of those; "
        "may be repeated.",
    ),
    click.option("--junit", metavar="FILE", help="Write cells and means as JUnit XML, for CI."),
    click.option(
        "--summary", metavar="FILE", help="Write a table of the means as Markdown, for CI."
    ),
)
no_report = click.option("--no-report", is_flag=True, help="Write no report at the end.")


@command.command("run")
@selection_options
@click.option("--rerun-failed", is_flag=True, help="Run failed cells again, too.")
@click.option("--no-resume", is_flag=True, help="Start a new run, whatever is recorded.")
@options.dry_run
@options.batch_options
@options.warm
@options.budget
@click.option(
    "--adaptive",
    is_flag=True,
    help="Let lanes find out how wide they can be; --lane-width is their cap.",
)
@no_report
@verdict_options
@options.executor
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
    from abreast.cli.jobs.job_file import read_text
    from abreast.cli.jobs.matrix.driver import drive_study

    return drive_study(file, read_text(file), given)


@command.command("report")
@click.option(
    "--out", metavar="FILE", help="Where to write it: .html or .md.  [RUN.html in .abreast/reports]"
)
@every_row
@verdict_options
@options.common
@options.run
def report(
    *,
    run: str,
    out: str | None,
    every: bool,
    store: str | None,
    as_json: bool,
    **wanted: Any,
) -> int:
    """Write the report of RUN: one page that works offline, or Markdown.

    With --fail-under, --junit or --summary just those are done, unless --out asks for the report.
    """
    from abreast.cli.jobs.matrix.report import write_report
    from abreast.cli.jobs.matrix.verdict import VerdictOptions

    choice = StoreChoice(Config.load(), store)
    return write_report(run, out, choice, VerdictOptions.of(wanted), every=every, as_json=as_json)


@command.command("score")
@no_report
@options.quiet
@options.common
@click.argument("file", metavar="FILE")
def score(*, file: str, **given: Any) -> int:
    """Score the replies of FILE's study again, by the scores that it has now.

    No model is asked, except judges.
    """
    from abreast.cli.jobs.job_file import read_text
    from abreast.cli.jobs.matrix.report import rescore

    return rescore(file, read_text(file), {**given, "seed": None, "tags": ()})


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
    return write_study(file)


_STUDY: Final = """\
# A study: every model answers every input by every strategy.
# Run it with: abreast matrix run {file}
matrix:
  models: [local/smollm2]
  strategies:
    plain:
      prompt: "What is the capital of {{{{ input.country }}}}? Answer with its name only."
      max_tokens: 8
      temperature: 0
    polite:
      prompt: "Please, tell me the name of the capital of \
{{{{ input.country }}}}, and nothing else."
      max_tokens: 8
      temperature: 0
  inputs: {data}
  scores: [contains]
  controls: [empty, truth]
"""
_INPUTS: Final = """\
{"id": "fr", "country": "France", "truth": "Paris"}
{"id": "it", "country": "Italy", "truth": "Rome"}
{"id": "jp", "country": "Japan", "truth": "Tokyo"}
{"id": "eg", "country": "Egypt", "truth": "Cairo"}
{"id": "pe", "country": "Peru", "truth": "Lima"}
"""


def write_study(file: str) -> int:
    """Write a study and its inputs; raises `UsageError` if one of the files exists."""
    path = Path(file)
    data = path.with_name(f"{path.stem}-inputs.jsonl")
    for one, text in ((path, _STUDY.format(file=file, data=data.name)), (data, _INPUTS)):
        try:
            with one.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            raise UsageError(f"{one} is there already; name another file, or remove it") from None
        except OSError as error:
            raise UsageError(f"{one} can't be written: {os_error_text(error)}", 1) from None
    tell(f"wrote {path} and {data}; run it with: abreast matrix run {path}")
    return 0

"""`abreast run FILE`: run a job file; its top-level key says which job it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from abreast.cli import options
from abreast.cli.config import SEED, Config
from abreast.cli.errors import Sorry, one_line, system_words
from abreast.cli.sampling import SampleStart, Sampling, check_run_name, say_plan, seed_of
from abreast.cli.stores import StoreChoice
from abreast.cli.work import View
from abreast.jobs.sample.spec import SampleSpec

_JOBS: Final = ("sample",)


@click.command("run")
@click.option("--name", metavar="TEXT", help="What the run is called; by default the job's kind.")
@click.option("--tag", "tags", metavar="WORD", multiple=True, help="A word to find the run by; may be repeated.")
@click.option("--seed", metavar="N", help="Makes it repeatable; drawn if not given.")
@options.dry_run
@options.quiet
@options.common
@click.argument("file", metavar="FILE")
def command(*, file: str, name: str | None, tags: tuple[str, ...], **given: Any) -> int:
    """Run the job in FILE. Its one top-level key says which job it is.

    \b
      sample:
        prompt: Name a colour.
        checks: ["regex ^(red|green|blue)$"]
        breadth: 4
        depth: 3
    """  # noqa: D301 - click wants the character itself
    config = Config.load()
    check_run_name(name or "sample")
    spec = read_job(file)
    choice = StoreChoice(config, given["store"])
    view = View(given["as_json"], given["quiet"], options.is_verbose())
    sampling = Sampling(spec, choice, view, cwd=os.getcwd())  # noqa: PTH109
    if given["dry_run"]:
        return say_plan(sampling, as_json=given["as_json"])
    sampling.check()
    start = SampleStart(name or "sample", seed=seed_of(spec, config.get(SEED, given["seed"])), tags=tags)
    with sampling.store() as store:
        return sampling.run(store, start)


def read_job(file: str) -> SampleSpec:
    """The job in a file; `Sorry` says what is wrong, and where."""
    import yaml

    try:
        text = Path(file).read_text("utf-8")
    except OSError as error:
        raise Sorry(f"{file} can't be read ({system_words(error)})") from None
    except UnicodeDecodeError:
        raise Sorry(f"{file} is not UTF-8; convert it") from None
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark is not None else file
        raise Sorry(f"{where}: {one_line(str(getattr(error, 'problem', None) or error))}") from None
    if not isinstance(found, dict) or len(found) != 1 or next(iter(found)) not in _JOBS:
        raise Sorry(f"{file}: a job file has one top-level key, which says what it is: {', '.join(_JOBS)}")
    facts = found["sample"]
    if not isinstance(facts, dict):
        raise Sorry(f"{file}: sample must be a mapping, with a prompt in it")
    try:
        return SampleSpec.of(facts, f"{file}: sample")
    except (ValueError, TypeError) as error:
        raise Sorry(one_line(str(error))) from None

"""`abreast plan`: divide a repository into subplans, run an agent on each in its own worktree, merge the results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from abreast.cli import options, units
from abreast.cli.config import BUDGET, SEED, Config
from abreast.cli.errors import Sorry
from abreast.cli.stores import StoreChoice
from abreast.cli.tables import say_json
from abreast.cli.work import View
from abreast.jobs.plan.decompose import decompose
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.imports import Imports, read_imports
from abreast.jobs.plan.inventory import take_inventory
from abreast.jobs.plan.nodes import Options, Plan
from abreast.jobs.plan.score import score as score_of


@click.group("plan")
def command() -> None:
    """Divide a repository into a tree of subplans; run them side by side, each in a worktree of its own; merge."""


dividing = options.group_of(
    click.option("--max-depth", metavar="N", help="Divide no deeper; the root is 0.  [8]"),
    click.option("--min-files", metavar="N", help="Leave parts of so few files whole.  [10]"),
    click.option("--max-files", metavar="N", help="Divide parts that have more."),
    click.option("--max-tokens", metavar="N", help="Divide parts that have more."),
)


@command.command("show")
@dividing
@click.option("--ids", is_flag=True, help="Show the ids of subplans, too.")
@options.as_json
@options.verbose
@click.argument("path", metavar="[PATH]", default=".")
def show(*, path: str, ids: bool, as_json: bool, **given: Any) -> int:
    """Show the tree of subplans that PATH is divided into, and why each part is divided or not."""
    plan, imports = make_plan(path, given)
    return _say(plan, imports, ids=ids, as_json=as_json, with_score=False)


@command.command("score")
@dividing
@options.as_json
@options.verbose
@click.argument("path", metavar="[PATH]", default=".")
def score(*, path: str, as_json: bool, **given: Any) -> int:
    """Say how well PATH divides, before anything is spent: cuts, hubs, likely conflicts, the gain of each width."""
    plan, imports = make_plan(path, given)
    return _say(plan, imports, ids=False, as_json=as_json, with_score=True)


@command.command("run")
@dividing
@click.option(
    "--command",
    "agent",
    metavar="TEXT",
    required=True,
    help="What to run in each worktree, by sh: {files} are its files; $ABREAST_FILE_LIST has them one per line, "
    "$ABREAST_SUBPLAN its name.",
)
@click.option("--width", "--max-parallel", "-w", "width", metavar="N", help="How many subplans run at once.  [5]")
@click.option(
    "--order",
    type=click.Choice(["parallel", "sequential", "dependencies"]),
    default="parallel",
    show_default=True,
    help="Whether subplans wait for those whose files theirs import.",
)
@click.option("--fail-fast", is_flag=True, help="Stop all at the first failure.")
@options.retries
@options.timeout
@options.budget
@click.option("--name", metavar="TEXT", default="plan", help="What the run is called.  [plan]")
@click.option("--tag", "tags", metavar="WORD", multiple=True, help="A word to find the run by; may be repeated.")
@click.option("--seed", metavar="N", help="Makes it repeatable; drawn if not given.")
@options.quiet
@options.common
@click.argument("path", metavar="[PATH]", default=".")
def run(*, path: str, agent: str, width: str | None, name: str, **given: Any) -> int:  # fmt: skip
    """Run a command on every subplan of PATH, side by side, each in a worktree of its own.

    PATH itself is not touched: `abreast plan apply RUN` merges what was done into it.
    """
    from abreast.cli.planning import PlanJob, Planning, PlanStart
    from abreast.cli.sampling import check_run_name

    config = Config.load()
    check_run_name(name)
    dividing_by = {word: given[word] for word in ("max_depth", "min_files", "max_files", "max_tokens")}
    job = PlanJob(
        str(Path(path).resolve()), agent, _number("--width", width) or 5, given["order"], given["fail_fast"],
        units.number(given["retries"], least=0) if given["retries"] else 0,
        units.duration(given["timeout"]) if given["timeout"] else None, config.get(BUDGET, given["budget"]),
        {word: value for word, value in dividing_by.items() if value is not None},
    )  # fmt: skip
    view = View(given["as_json"], given["quiet"], options.is_verbose())
    planning = Planning(job, StoreChoice(config, given["store"]), view)
    with StoreChoice(config, given["store"]).open() as store:
        return planning.run(store, PlanStart(name, config.get(SEED, given["seed"]), given["tags"]))


@command.command("apply")
@click.option(
    "--strategy",
    type=click.Choice(["three-way", "sequential", "fail-on-conflict", "last-wins"]),
    default="three-way",
    show_default=True,
)
@click.option(
    "--outside",
    type=click.Choice(["refuse", "request"]),
    default="refuse",
    show_default=True,
    help="What becomes of writes outside of a subplan's files.",
)
@options.dry_run
@options.common
@options.run
def apply(*, run: str, strategy: str, outside: str, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Merge what the subplans of RUN did into its tree: all of it, or nothing where there are conflicts."""
    from abreast.cli.planning import apply_run

    return apply_run(
        run, StoreChoice(Config.load(), store), strategy=strategy, outside=outside, dry_run=dry_run, as_json=as_json
    )


def make_plan(path: str, given: dict[str, Any]) -> tuple[Plan, Imports]:
    """The plan of a directory; `Sorry` says what can't be."""
    root = Path(path)
    if not root.is_dir():
        raise Sorry(f"{path} is no directory")
    chosen = {word: given[word] for word in _WORDS if given.get(word) is not None}
    numbers = {word: _number(f"--{word.replace('_', '-')}", value) for word, value in chosen.items()}
    try:
        inventory = take_inventory(root)
        imports = read_imports(root, inventory)
        return decompose(inventory, imports, Options(**numbers)), imports  # type: ignore[arg-type]
    except PlanInvalid as error:
        raise Sorry(str(error)) from None


_WORDS = ("max_depth", "min_files", "max_files", "max_tokens")


def _number(flag: str, given: object) -> int | None:
    if given is None:
        return None
    try:
        return units.number(given, least=0)
    except ValueError as error:
        raise Sorry(f"{flag}: {error}") from None


def _say(plan: Plan, imports: Imports, *, ids: bool, as_json: bool, with_score: bool) -> int:
    from abreast.jobs.plan.tree import score_lines, show, to_json

    report = score_of(plan, imports)
    if as_json:
        say_json(to_json(plan, report))
        return 0
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, force_terminal=None if os.isatty(1) else False)
    if with_score:
        for line in score_lines(plan, report):
            console.print(line, markup=False)
    else:
        console.print(show(plan, report, ids=ids))
    return 0

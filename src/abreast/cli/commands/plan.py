"""`abreast plan`: divides a repository into subplans, runs them in worktrees, and merges them."""

import os
from pathlib import Path
from typing import Any

import click

from abreast.cli import options
from abreast.cli.config import BUDGET, Config
from abreast.cli.errors import UsageError, os_error_text, refusing, tell
from abreast.cli.jobs.plan.job import (
    ShownPlan,
    check_free,
    command_of,
    flag,
    given_flags,
    make_plan,
    plan_node,
    print_plan,
    proposed_plan,
    read_job,
    recorded_job,
    repair_tree,
    write_plan_file,
)
from abreast.cli.jobs.request import new_request
from abreast.cli.stores import StoreChoice, find_run
from abreast.jobs.plan.decompose.score import score as score_of
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.forecast import forecast_cost
from abreast.jobs.plan.settings import KIND, ORDERS, PlanJob
from abreast.worktrees.results.held_results import clear_leftovers


@click.group("plan")
def command() -> None:
    """Divide a repository into a tree of subplans; run each in its own worktree; merge."""


division_options = options.group_of(
    click.option(
        "--max-depth", metavar="N", help="Divide by directories, no deeper; the root is 0.  [8]"
    ),
    click.option(
        "--min-files",
        metavar="N",
        help="Divide by directories, and leave parts of so few files whole.  [10]",
    ),
    click.option(
        "--max-files", metavar="N", help="Divide by directories, and parts that have more further."
    ),
    click.option("--max-tokens", metavar="N", help="Divide parts that have more.  [40000]"),
    click.option(
        "--min-tokens",
        metavar="N",
        help="Divide by imports, into parts that have no fewer, where that is possible.  [2000]",
    ),
    click.option(
        "--include",
        metavar="PATTERN",
        multiple=True,
        help="Divide only such files: src/, '*.py'; may be repeated.",
    ),
    click.option(
        "--exclude",
        metavar="PATTERN",
        multiple=True,
        help="Leave such files out: they are in no part; may be repeated.",
    ),
    click.option("--all-files", is_flag=True, help="Divide generated and vendored files, too."),
)


planner_option = click.option(
    "--planner",
    metavar="MODEL",
    help="A model that proposes the parts: what to merge and to split, names, instructions.",
)
check_option = click.option(
    "--check",
    metavar="TEXT",
    help="What must pass on the merge, if it passed before, by sh: "
    "{tests} are those that import what was changed.",
)


@command.command("show")
@division_options
@click.option("--ids", is_flag=True, help="Show the ids of subplans, too.")
@click.option(
    "--html",
    metavar="FILE",
    help="Write a page with a map of the subplans, for a browser, offline.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the plan to a YAML file, to edit it.")
@planner_option
@click.option("--prompt", metavar="TEXT", default="", help="What is to be done, for --planner.")
@options.common
@click.argument("path", metavar="[PATH]", default=".")
def show(
    *,
    path: str,
    ids: bool,
    html: str | None,
    output: str | None,
    planner: str | None,
    prompt: str,
    as_json: bool,
    store: str | None,
    **given: Any,
) -> int:
    """Show the tree of subplans that PATH is divided into, and why each part is divided or not.

    PATH is a directory, or the file of a plan. With -o the plan becomes a file: merge, split and
    rename its parts, move files, give each part instructions, then `abreast plan run FILE`.
    """
    shown = _plan_of(path, given)
    if planner is not None:
        if output is not None:
            check_free(output)
        shown = proposed_plan(shown, planner, prompt, StoreChoice(Config.load(), store))
    if output is not None:
        return write_plan_file(shown, output)
    if html is not None:
        return _write_page(shown, html)
    return print_plan(shown.plan, shown.imports, ids=ids, as_json=as_json, needs=shown.needs)


@command.command("score")
@division_options
@click.option(
    "--model", "-m", metavar="NAME", help="Also forecast what it costs if this model does the work."
)
@click.option("--prompt", metavar="TEXT", default="", help="What is to be done, for the forecast.")
@options.as_json
@options.verbose
@click.argument("path", metavar="[PATH]", default=".")
def score(*, path: str, model: str | None, prompt: str, as_json: bool, **given: Any) -> int:
    """Say how well PATH divides, before anything is spent.

    It shows cuts, balance, hubs, likely conflicts, the gain of each width, and with a model what
    its work would cost. PATH is a directory, or the file of a plan.
    """
    shown = _plan_of(path, given)
    model = model or shown.options.get("model")
    prompt = prompt or str(shown.options.get("prompt") or "")
    cost = None
    if model is not None:
        # Not above: the clients of models take longer to import than all the rest.
        from abreast.cli.jobs.model_options import configured_lanes, find_known_price

        name, price = find_known_price(str(model), configured_lanes(Config.load()))
        cost = forecast_cost(shown.plan, name, price, prompt)
    return print_plan(
        shown.plan, shown.imports, as_json=as_json, only_score=True, cost=cost, needs=shown.needs
    )


class _WithCommand(click.Command):
    """Takes what follows `--` as the command of a subplan, as `abreast map` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the words after `--` in place of `--command`; raises `UsageError` for both."""
        if "--" in args[:-1]:
            place = args.index("--")
            before, words = args[:place], args[place + 1 :]
            if any(word == "--command" or word.startswith("--command=") for word in before):
                raise UsageError("--command and a command after -- exclude each other")
            args = [*before, "--command", command_of(words)]
        return super().parse_args(ctx, args)


@command.command("run", cls=_WithCommand)
@division_options
@click.option(
    "--command",
    metavar="TEXT",
    help="What to run in each worktree, by sh: {files} are its files; $ABREAST_FILE_LIST has them "
    "one per line, $ABREAST_SUBPLAN its name, $ABREAST_INSTRUCTION the prompt, {instructions} and "
    "$ABREAST_INSTRUCTIONS what this part alone is told.",
)
@click.option(
    "--call",
    metavar="PKG.MOD:FN",
    help="A Python function to call in each worktree, with its Assignment.",
)
@click.option(
    "--prompt",
    "--instruction",
    "prompt",
    metavar="TEXT",
    help="What is to be done. Without --command and --call, a model does it.",
)
@click.option(
    "--model",
    "-m",
    metavar="NAME",
    help="Which model edits the files: provider/model.  [local/smollm2]",
)
@click.option(
    "--repairs",
    metavar="N",
    help="How often a model may answer again, if a reply breaks a rule.  [2]",
)
@click.option(
    "--temperature",
    metavar="X",
    help="How freely the model chooses, from 0 on; the provider's default.",
)
@click.option("--reply-tokens", metavar="N", help="The longest reply of the model.")
@click.option(
    "--reasoning",
    metavar="HOW",
    help="How much the model thinks first: none, minimal, low, medium, high, xhigh, max.",
)
@click.option(
    "--width",
    "--max-parallel",
    "-w",
    "width",
    metavar="N",
    help="How many subplans run at once.  [5]",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="Whether subplans wait for those whose files theirs import.  [parallel]",
)
@options.agent_in_tree_options
@options.executor
@planner_option
@click.option(
    "--rounds",
    metavar="N",
    help="Run a subplan again if others wrote to its files, with what they ask for, in at most "
    "so many rounds; 1 turns it off.  [2]",
)
@click.option("--fail-fast", is_flag=True, help="Stop all at the first failure.")
@options.retries
@options.timeout
@options.budget
@check_option
@click.option("--name", metavar="TEXT", default="plan", help="What the run is called.  [plan]")
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
@click.argument("path", metavar="[PATH] [-- COMMAND [ARGUMENT]...]", default=".")
def run(*, name: str, **given: Any) -> int:
    """Run a command, a function or a model on every subplan of PATH, each in its own worktree.

    The subplans run side by side. PATH itself is not touched: `abreast plan apply RUN` merges what
    was done into it. PATH may be the file of a plan, which `abreast plan show -o` writes.

    \b
      abreast plan run -w 10 -- ruff format {files}
      abreast plan run --command 'ruff check --fix {files} && ruff format {files}'
      abreast plan run --call codemods:rename_keyword
      abreast plan run -m openai/gpt-4o-mini --prompt "Add type hints."
      abreast plan run --agent claude --prompt "Add type hints."
      abreast plan run plan.yaml --command './agent.sh {instructions} {files}'
    """  # noqa: D301 - click wants the character itself
    from abreast.cli.jobs.driver import drive
    from abreast.cli.jobs.plan.driver import PlanDriver

    config = Config.load()
    shared = {
        word: given.pop(word) for word in ("tags", "seed", "store", "as_json", "quiet", "wait")
    }
    path = given.pop("path")
    facts = given_flags({**given, "budget": config.get(BUDGET, given["budget"])})
    file = path if Path(path).is_file() else ""
    if file:
        job = read_job(file, plan_node(file), facts, flag)
    else:
        with refusing("", PlanInvalid):
            job = PlanJob.of({**facts, "path": path}, os.getcwd(), flag)  # noqa: PTH109 - text
    request = new_request(config, name, shared)
    return drive(PlanDriver(job, request, file), request)


@command.command("resume")
@options.optional_run
@click.option(
    "--retry-failed",
    "--only-failed",
    is_flag=True,
    help="Run failed subplans again, also of a run that ended.",
)
@options.wait
@options.budget
@options.quiet
@options.common
def resume(*, run: str | None, store: str | None, **given: Any) -> int:
    """Go on with RUN, or with the newest plan that did not end.

    Only subplans that are not done are run.
    """
    from abreast.cli.commands.resume import command as resume_any
    from abreast.cli.commands.resume import newest_unfinished

    with StoreChoice(Config.load(), store).existing() as opened:
        row = newest_unfinished(opened, {KIND}) if run is None else find_run(opened, run)
    directory = Path.cwd() if row is None or row.kind != KIND else Path(recorded_job(row).path)
    if directory.is_dir():
        repair_tree(directory)
    if row is None:
        clear_leftovers(directory, tell)
        tell("nothing to resume: no plan is waiting to go on")
        return 0
    others: dict[str, Any] = {"inputs": (), "width": None, "retries": None, "timeout": None}
    code: int = click.get_current_context().invoke(
        resume_any, run=row.id, store=store, **given, **others
    )
    return code


@command.command("apply")
@click.option(
    "--strategy",
    type=click.Choice(["three-way", "sequential", "fail-on-conflict", "last-wins"]),
    default="three-way",
    show_default=True,
)
@click.option(
    "--outside",
    type=click.Choice(["refuse", "request", "allow"]),
    default="refuse",
    show_default=True,
    help="What becomes of writes outside of a subplan's files: nothing is merged, they are listed "
    "for their owners, or they are merged.",
)
@click.option(
    "--leave-requests", is_flag=True, help="With --outside request: merge all but those writes."
)
@click.option(
    "--partial",
    is_flag=True,
    help="Merge what is done, though other subplans failed or did not run.",
)
@click.option(
    "--gate/--no-gate",
    default=True,
    help="Look first whether it compiles, imports resolve, checks pass.",
)
@check_option
@click.option(
    "--branches",
    is_flag=True,
    help="Make a branch with one commit for each subplan, abreast/RUN/PART, and leave the tree.",
)
@click.option("--anyway", is_flag=True, help="Merge it although it was rejected.")
@options.dry_run
@options.common
@options.run
def apply(*, run: str, store: str | None, branches: bool, **given: Any) -> int:
    """Merge what the subplans of RUN did into its tree: all of it, or nothing on a problem.

    What the merge would break is a fault that the tree doesn't have now; it is printed with the
    subplans that cause it. `abreast plan undo` takes an apply back.
    """
    from abreast.assembly.plan_merge import MergeOptions
    from abreast.cli.jobs.plan.apply import ApplyOptions, apply_run

    as_json = given.pop("as_json")
    if branches:
        from abreast.cli.jobs.plan.review import branches_run

        choice = StoreChoice(Config.load(), store)
        return branches_run(run, choice, MergeOptions(**given), as_json=as_json)
    options = ApplyOptions(MergeOptions(**given), as_json)
    return apply_run(run, StoreChoice(Config.load(), store), options)


@command.command("diff")
@click.option("--stat", is_flag=True, help="Only how many lines of each file.")
@click.option(
    "--conflicts", is_flag=True, help="Show what can't be merged, both sides with markers."
)
@options.common
@options.run
@click.argument("part", metavar="[PART]", required=False)
def diff(*, run: str, part: str | None, store: str | None, **given: Any) -> int:
    """Show what the subplans of RUN changed, or one of them, as a unified diff."""
    from abreast.cli.jobs.plan.review import diff_run

    return diff_run(run, part, StoreChoice(Config.load(), store), given)


@command.command("resolve")
@click.option(
    "--take",
    metavar="PART|source|edit",
    help="What becomes of FILE: what that subplan made of it, the file as it is in the tree, or "
    "a text of your own.",
)
@click.option(
    "--from",
    "source",
    metavar="TEXT_FILE",
    help="With --take edit: where the text is, - for the standard input; else an editor opens.",
)
@options.store
@options.verbose
@options.run
@click.argument("file", metavar="FILE")
def resolve(*, run: str, file: str, take: str | None, source: str | None, store: str | None) -> int:
    """Choose what becomes of FILE, which subplans of RUN changed in ways that conflict.

    Without --take it prints both sides with markers. `abreast plan apply` uses what was chosen, as
    long as all sides are what they were.

    \b
      abreast plan resolve last src/a.py > merged.py
      abreast plan resolve last src/a.py --take edit --from merged.py
    """  # noqa: D301 - click wants the character itself
    from abreast.cli.jobs.plan.review import resolve_run

    return resolve_run(run, file, StoreChoice(Config.load(), store), take, source)


@command.command("reject")
@click.option("--reason", metavar="TEXT", default="", help="Why; it is shown with the rejection.")
@options.common
@options.run
def reject(*, run: str, reason: str, store: str | None, as_json: bool) -> int:
    """Record that what the subplans of RUN did is not to be merged.

    Nothing is lost: `abreast plan apply RUN` says when it was rejected and why, and with --anyway
    it merges. `abreast resume RUN`, which makes other results, ends the rejection.
    """
    from abreast.cli.jobs.plan.reject import reject_run

    return reject_run(run, StoreChoice(Config.load(), store), reason, as_json=as_json)


@command.command("undo")
@options.dry_run
@options.common
@options.optional_run
def undo(*, run: str | None, store: str | None, dry_run: bool, as_json: bool) -> int:
    """Take back what `abreast plan apply` wrote for RUN, or the newest apply.

    Contents, permissions, links, deleted and created files, and directories that went with their
    last file are again as they were before. If one of these files was changed since, it is named,
    and nothing is taken back. What was before the ten newest applies of a directory is kept.
    """
    from abreast.cli.jobs.plan.apply import undo_run

    return undo_run(run, StoreChoice(Config.load(), store), dry_run=dry_run, as_json=as_json)


def _plan_of(path: str, given: dict[str, Any]) -> ShownPlan:
    """The plan of a directory, after the worktrees of killed plans are cleaned up."""
    made = make_plan(path, given)
    clear_leftovers(Path(made.path), tell)
    return made


def _write_page(shown: ShownPlan, html: str) -> int:
    from abreast.jobs.plan.page import write_page

    name = Path(shown.path).resolve().name or shown.path
    try:
        report = score_of(shown.plan, shown.imports, needs=shown.needs)
        write_page(shown.plan, report, name, html)
    except OSError as error:
        raise UsageError(f"--html: {html} can't be written ({os_error_text(error)})") from None
    tell(f"wrote {html}")
    return 0

"""The options of a plan, from flags or a file, and the plan that they make, as it is printed."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from abreast.cli.errors import FAILED, UsageError, refusing, tell
from abreast.cli.terminal.tables import say_json
from abreast.core.errors import AbreastError
from abreast.jobs.files.yaml_nodes import YamlNode
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.score import score as score_of
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.settings import PlanJob, divide
from abreast.jobs.plan.spec import Plan
from abreast.store.port import RunRow
from abreast.worktrees.merge.errors import ApplyRunning
from abreast.worktrees.merge.repair import repair


def read_job(file: str, node: YamlNode, flags: dict[str, Any]) -> PlanJob:
    """The job of a file; `flags` override its keys.

    Raises `UsageError` with the line of an error.
    """
    place = f"{file}:{node.line}: "
    if node.kind != "mapping":
        raise UsageError(
            f"{place}plan must be a mapping, "
            "such as {command: 'ruff format {files}', width: 10}"
        )

    def spell(word: str) -> str:
        return f"{file}:{node.line_of(word)}: {word}" if word in node.pairs else word

    facts = {word: value.plain() for word, value in node.items()}
    given = {word: value for word, value in flags.items() if value is not None}
    with refusing("", PlanInvalid):
        return PlanJob.of({**facts, **given}, os.getcwd(), spell, place)  # noqa: PTH109 - stored as text


def recorded_job(row: RunRow, budget: str | None = None) -> PlanJob:
    """The job of a recorded run, with another budget if one is given."""
    with refusing("", PlanInvalid):
        job = PlanJob.recorded(row)
    return replace(job, budget=budget or job.budget)


def current_plan(job: PlanJob) -> tuple[Plan, Imports]:
    """The plan of the job's directory as it is now, after a killed apply is repaired."""
    if Path(job.path).is_dir():
        repair_tree(Path(job.path))
    with refusing("", PlanInvalid):
        return job.divide()


def repair_tree(root: Path) -> None:
    """Undo or complete a killed apply, and print what was done.

    Raises `UsageError` if that is impossible.
    """
    try:
        for line in repair(root):
            tell(line)
    except ApplyRunning as error:
        raise UsageError(str(error), FAILED) from None
    except (AbreastError, OSError) as error:
        raise UsageError(f"a merge was cut off, and can't be taken back: {error}", FAILED) from None


def make_plan(path: str, given: Mapping[str, Any]) -> tuple[Plan, Imports]:
    """The plan of a directory, after a killed apply is repaired.

    Raises `UsageError` if the directory can't be divided.
    """
    if Path(path).is_dir():
        repair_tree(Path(path))
    with refusing("", PlanInvalid):
        return divide(path, given, flag)


def flag(word: str) -> str:
    """How a key of a plan is written on the command line."""
    return f"--{word.replace('_', '-')}"


def print_plan(
    plan: Plan,
    imports: Imports,
    *,
    ids: bool = False,
    as_json: bool = False,
    only_score: bool = False,
) -> int:
    """Print a plan: as JSON, as a tree with its score, or the score alone."""
    from abreast.jobs.plan.tree_text import score_lines, show, to_json
    from abreast.worktrees.merge.names import printable

    report = score_of(plan, imports)
    if as_json:
        say_json(to_json(plan, report))
        return 0
    from rich.console import Console

    console = Console(
        highlight=False, soft_wrap=True, force_terminal=None if os.isatty(1) else False
    )
    if only_score:
        for line in score_lines(plan, report):
            console.print(printable(line), markup=False)
    else:
        console.print(show(plan, report, ids=ids))
    return 0

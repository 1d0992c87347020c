"""Prints a plan: as JSON, as a tree with its score, or the score alone."""

import os

from abreast.cli.terminal.tables import say_json
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.score import score as score_of
from abreast.jobs.plan.spec import Plan


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

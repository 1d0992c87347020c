"""`abreast optimize`: tries candidates for a faster function, and writes the best as a patch."""

from typing import Any

import click

from abreast.cli import options

candidate_options = options.group_of(
    click.option(
        "--tests",
        "tests",
        metavar="FILE",
        multiple=True,
        help="The tests that call it: a file, directory or node id of pytest; may be repeated.",
    ),
    click.option("--doctests", is_flag=True, help="Run the doctests of its file."),
    click.option(
        "--workload",
        metavar="FILE",
        multiple=True,
        help="A Python script that calls it; may be repeated.",
    ),
    click.option(
        "--trace",
        metavar="TEXT",
        help='A command, such as "python app.py", whose calls are recorded and made again.',
    ),
    click.option("--hints", is_flag=True, help="Call it with what Hypothesis makes of its hints."),
    click.option(
        "--calls-by",
        metavar="MODEL",
        help="A model that proposes calls, which are tried with the original first.",
    ),
    click.option(
        "--python", metavar="PATH", help="The project's Python, with its pytest.  [this one]"
    ),
    click.option(
        "--compare",
        type=click.Choice(["strict", "loose"]),
        default="strict",
        show_default=True,
        help="Whether dict order, -0.0, sharing, and causes of exceptions count.",
    ),
    click.option(
        "--exceptions",
        type=click.Choice(["type", "args", "message"]),
        default="args",
        show_default=True,
        help="How much of an exception counts.",
    ),
    click.option(
        "--rel-tol",
        "rel_tol",
        metavar="X",
        help="How far floats may be apart, as a share of the larger one.  [0]",
    ),
    click.option(
        "--abs-tol", "abs_tol", metavar="X", help="How far floats may be apart at least.  [0]"
    ),
    click.option(
        "--behaviour-only",
        is_flag=True,
        help="Compare behaviour, and measure nothing.",
    ),
    click.option(
        "--threshold",
        metavar="X",
        help="What it must be faster by, as a share or in percent.  [2%]",
    ),
    click.option(
        "--blocks",
        metavar="N",
        help="Measure no more than so many blocks, each of six runs or more.  [56]",
    ),
    click.option(
        "--generated",
        metavar="N",
        help="So many inputs are made up beside those of the tests.  [200]",
    ),
    click.option(
        "--timeout",
        metavar="TIME",
        help="CPU time of a run of the tests; "
        "a candidate has at least ten times the original's.  [60s]",
    ),
    options.executor,
    options.budget,
    options.dry_run,
    click.option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where to write the winner's patch.  [beside the store]",
    ),
    click.option(
        "--branch",
        metavar="NAME",
        help="Make a branch with the winner as a commit on HEAD; nothing is checked out.",
    ),
    click.option("--name", metavar="TEXT", help="What the run is called.  [optimize]"),
    click.option(
        "--tag",
        "tags",
        metavar="WORD",
        multiple=True,
        help="A word to find the run by; may be repeated.",
    ),
    click.option("--seed", metavar="N", help="Makes it repeatable; drawn if not given."),
    click.option("--profile", is_flag=True, help="Print what each phase took, on stderr."),
    options.quiet,
    options.common,
)
"""How candidates are checked and measured."""


@click.command("optimize")
@click.option(
    "--candidates",
    metavar="DIR",
    help="Python files: each the whole file anew, or only the function.",
)
@click.option("--patches", metavar="DIR", help="Patches, of the target's file and others.")
@click.option("--refs", metavar="A,B", help="Commits or branches that have it otherwise.")
@click.option(
    "--command",
    "agent",
    metavar="TEXT",
    help="A command for sh that prints one; see $ABREAST_FILE, $ABREAST_TARGET.",
)
@click.option(
    "--model",
    "-m",
    metavar="NAME",
    help="A model that proposes, or repairs and refines what is given.",
)
@click.option(
    "--author",
    metavar="NAME",
    help="A coding agent that does so in a copy of the working tree: claude, codex, or one of "
    "[agents.NAME] in abreast.toml; --model is then one of its own.",
)
@click.option(
    "--allow",
    metavar="WORD",
    multiple=True,
    help="What the agent may do, as `abreast map --allow`; may be repeated.  [edit]",
)
@options.wait
@click.option(
    "--proposals", metavar="N", help="So many from the model, the agent or the command.  [4]"
)
@click.option("--repairs", metavar="N", help="So often a model may repair a wrong candidate.  [2]")
@click.option("--no-refine", is_flag=True, help="Don't have a model refine those that are faster.")
@click.option(
    "--width",
    "--parallel",
    "--parallel-candidates",
    "-w",
    "width",
    metavar="N",
    help="How many are checked at once; 0 and 1 are one by one.  [2]",
)
@click.option(
    "--all",
    "all_functions",
    is_flag=True,
    help="Try the functions of a file or directory that the tests spend most time in.",
)
@click.option("--top", metavar="N", help="With --all, try so many functions.  [5]")
@candidate_options
@click.argument("target", metavar="FILE::FUNCTION")
def command(*, target: str, **given: Any) -> int:
    """Try candidates for a faster FUNCTION in FILE, and give the best as a patch.

    A candidate must do what the original does, in all that the tests call it with and in made-up
    inputs besides; and it must be faster by more than this machine's noise. Your files are not
    touched: each is tried in a worktree.

    \b
      abreast optimize pkg/words.py::top --tests tests/test_words.py --candidates drafts/ --width 4
      abreast optimize pkg/words.py::Bag.add --tests tests --model openai/gpt-4o-mini --budget 20req
      abreast optimize pkg/words.py::top --tests tests --author claude --proposals 3 --budget 5usd
      abreast optimize pkg --all --tests tests --model openai/gpt-4o-mini --budget 50req
    """  # noqa: D301 - click wants the character itself
    from abreast.cli.jobs.candidates.driver import drive_candidates

    refs = [ref.strip() for ref in (given.pop("refs") or "").split(",") if ref.strip()]
    facts = {
        "command": given.pop("agent"),
        "refs": refs,
        "refine": False if given.pop("no_refine") else None,
    }
    return drive_candidates({"target": target, **facts}, "optimize", given)

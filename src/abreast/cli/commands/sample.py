"""`abreast sample`: draws from a model, checks and repairs, until one draw passes."""

from typing import Any

import click

from abreast.cli import options
from abreast.cli.config import BUDGET, MODEL, Config
from abreast.cli.errors import UsageError, refusing
from abreast.cli.jobs.model_options import (
    read_call_mode,
    read_schema,
    read_talk,
    read_temperature,
    read_thinking,
)
from abreast.cli.jobs.request import new_request, read_number
from abreast.cli.jobs.sample import drive_spec
from abreast.jobs.sample.arguments import ERRORS
from abreast.jobs.sample.branch_order import PICKS
from abreast.jobs.sample.spec import SampleSpec
from abreast.jobs.sample.strategies import STRATEGIES
from abreast.models.conversation import make_conversation


@click.command("sample")
@options.model_options
@options.images
@options.messages
@options.warm
@click.option(
    "--check", "checks", metavar="TEXT", multiple=True, help="What a draw must be; may be repeated."
)
@click.option(
    "--breadth",
    "-b",
    metavar="N",
    default="1",
    help="Branches side by side; up to N times the cost.  [1]",
)
@click.option(
    "--depth",
    "-d",
    metavar="N",
    default="1",
    help="Rounds of each branch: a draw, and N-1 repairs.  [1]",
)
@click.option(
    "--strategy", metavar="NAME", help=f"What to ask next: {', '.join(STRATEGIES)}.  [rejection]"
)
@click.option(
    "--pick",
    metavar="HOW",
    default="ordered",
    help="ordered, or first: the draw that passes first in time.",
)
@click.option(
    "--on-error",
    metavar="HOW",
    default="raise",
    help="If none passes: raise, or collect what was raised.",
)
@click.option(
    "--judge", metavar="NAME", help="The model that answers 'judge: ...'; by default the same."
)
@click.option(
    "--explain", is_flag=True, help="Run all checks on every draw, also after one has failed."
)
@options.agent_in_tree_options
@options.batch_options
@options.budget
@click.option("--name", metavar="TEXT", default="sample", help="What the run is called.  [sample]")
@click.option(
    "--tag",
    "tags",
    metavar="WORD",
    multiple=True,
    help="A word to find the run by; may be repeated.",
)
@click.option(
    "--seed", metavar="N", help="Other draws; by default those that belong to the prompt."
)
@options.dry_run
@options.quiet
@options.common
@click.argument("question", metavar="PROMPT", required=False)
def command(question: str | None, **given: Any) -> int:
    """Draw from a model, in branches of several rounds side by side, until one draw passes.

    \b
      abreast sample "Name a colour." --check 'regex ^(red|green|blue)$' --breadth 4 --depth 3
      abreast sample "A haiku." --check 'lines 3' --check 'judge: is a haiku' --strategy repair -d 3
      abreast sample --agent claude --breadth 3 --check 'pytest -q' "Fix the failing test."

    A draw must pass all checks: json, regex RE, contains TEXT, lines N, max-words N, min-words N,
    schema FILE, call PKG.MOD:FN, 'judge: REQUIREMENT'; `hidden` in front keeps one from the model.
    With --agent each branch works in a worktree of its own, any other check is a command that must
    succeed there (`run COMMAND` if it begins like a check), and `abreast plan apply` merges the
    winner's work.
    The winner is the least (round, branch) that passes, the same whatever the delays. If none does
    and something was raised, that is printed; with --on-error collect the best draw is printed all
    the same. Breadth multiplies the cost, and 429s come sooner; --dry-run says what a sample may
    cost. The exit code is 0 if a draw passed, 1 if none did, 3 if a budget is spent.
    """  # noqa: D301 - click wants the character itself
    config = Config.load()
    request = new_request(config, given["name"], given)
    return drive_spec(
        _spec(config, question, given), request, given["lane_width"], read_call_mode(given)
    )


def _spec(config: Config, question: str | None, given: dict[str, Any]) -> SampleSpec:
    talk = read_talk(given["messages"])
    if not (question or "").strip() and (talk is None or question is not None):
        raise UsageError("the prompt is empty; write: abreast sample PROMPT")
    if talk is not None:
        with refusing("--messages"):
            make_conversation(question, talk, given["image"], system=given["system"])
    if given["pick"] not in PICKS:
        raise UsageError(f"--pick: choose one of {', '.join(PICKS)}, not {given['pick']!r}")
    if given["on_error"] not in ERRORS:
        raise UsageError(
            f"--on-error: choose one of {', '.join(ERRORS)}, not {given['on_error']!r}"
        )
    if given["agent"] is None and given["allow"]:
        raise UsageError("--allow is for --agent; write: abreast sample --agent claude PROMPT")
    if given["agent"] is not None:
        for name in ("temperature", "max_tokens", "reasoning", "thinking_tokens", "image"):
            if given[name]:
                raise UsageError(f"--{name.replace('_', '-')} is for models, and --agent is none")
    return SampleSpec(
        question,
        model=config.get(MODEL, given["model"]) if given["agent"] is None else given["model"] or "",
        agent=given["agent"],
        allow=given["allow"],
        judge=given["judge"],
        checks=given["checks"],
        strategy=given["strategy"],
        pick=given["pick"],
        on_error=given["on_error"],
        system=given["system"],
        schema=read_schema(given["schema"]),
        temperature=read_temperature(given["temperature"]),
        max_tokens=read_number("--max-tokens", given["max_tokens"]),
        **read_thinking(given),
        budget=config.get(BUDGET, given["budget"]),
        explain=given["explain"],
        images=given["image"],
        messages=None if talk is None else tuple(talk),
        warm=given["warm"],
        breadth=read_number("--breadth", given["breadth"]) or 1,
        depth=read_number("--depth", given["depth"]) or 1,
    )

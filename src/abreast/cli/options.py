"""Options that several commands share."""

import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from abreast.cli.config import Config
from abreast.cli.stores import LAST, StoreChoice
from abreast.core.frozen import record

COMPLETION = "_ABREAST_COMPLETE"
"""The environment variable by which a shell requests completions."""

F = TypeVar("F", bound=Callable[..., Any])


@record(slots=True)
class Root:
    """Options of the whole invocation."""

    verbose: bool = False


def _set_verbose(context: click.Context, _: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - as click calls it
    if value:
        context.find_root().ensure_object(Root).verbose = True
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="abreast: %(message)s")
    return value


def _complete_run(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The ids of runs that complete a command line; none if the store can't be read."""
    try:
        with StoreChoice(Config.load(), context.params.get("store")).look() as store:
            rows = store.runs(limit=50) if store is not None else []
    except Exception:  # noqa: BLE001 - a shell would print any error into the line being typed
        return []
    found = [
        CompletionItem(row.id, help=row.state) for row in rows if row.id.startswith(incomplete)
    ]
    return found + ([CompletionItem(LAST)] if LAST.startswith(incomplete) else [])


store = click.option(
    "--store",
    metavar="STORE",
    help="The store: a file, or postgresql://...; by default .abreast/abreast.db of the project.",
)
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: one object, or one per line."
)
quiet = click.option(
    "--quiet", "-q", is_flag=True, help="Say nothing about what goes well, nor how it goes."
)
verbose = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    callback=_set_verbose,
    expose_value=False,
    help="Say more; show tracebacks.",
)
dry_run = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
run = click.argument("run", metavar="RUN", shell_complete=_complete_run)
optional_run = click.argument("run", metavar="[RUN]", required=False, shell_complete=_complete_run)

width = click.option(
    "--width",
    "-w",
    "-P",
    "-j",
    "--jobs",
    "--max-procs",
    "width",
    metavar="N",
    help="How many run at once.  [8; with --prompt, as many as the lane takes]",
)
budget = click.option(
    "--budget",
    metavar="AMOUNTS",
    help="Stop when it is spent: 500req, 10min, 20usd, several by comma.",
)
timeout = click.option(
    "--timeout", metavar="TIME", help="End an attempt that takes longer: 30s, 5min."
)
retries = click.option(
    "--retries", metavar="N", help="Try a failing item so many times again.  [0]"
)


executor = click.option(
    "--executor",
    metavar="NAME",
    help="Where commands work: local (default), or ray, the nodes of a cluster "
    "(ray:GPU=1,CPU=4 for what each takes).",
)


def group_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


model_options = group_of(
    click.option(
        "--model", "-m", metavar="NAME", help="Which model: provider/model.  [local/smollm2]"
    ),
    click.option("--system", metavar="TEXT", help="What stands before the prompt."),
    click.option("--schema", metavar="FILE", help="A JSON schema that the reply must obey."),
    click.option(
        "--temperature",
        metavar="X",
        help="How freely to choose, from 0 on; the provider's default.",
    ),
    click.option("--max-tokens", metavar="N", help="The longest reply."),
    click.option(
        "--reasoning",
        metavar="HOW",
        help="How much to think first: none, minimal, low, medium, high, xhigh, max.",
    ),
    click.option(
        "--thinking-tokens", metavar="N", help="The most tokens to think with, besides the reply's."
    ),
    click.option(
        "--lane-width",
        "--provider-concurrency",
        "lane_width",
        metavar="N",
        help="At most so many requests at once per provider, or for some: "
        "openai=8,anthropic=2.  [4]",
    ),
)
"""Which model is asked, and with which settings."""

batch_options = group_of(
    click.option(
        "--batch",
        is_flag=True,
        help="Make the calls in batches: about half the price, within a day. See `docs/batch.md`.",
    ),
    click.option(
        "--batch-fallback",
        metavar="HOW",
        help="Calls that a batch leaves without an answer: in the next `batch`, or `direct`.  "
        "[batch]",
    ),
    click.option(
        "--batch-wait",
        metavar="TIME",
        help="Wait so long for batches, then end with exit code 3, to be resumed; 0 to leave as "
        "soon as they are submitted.  [until they are done]",
    ),
    click.option(
        "--tier", metavar="NAME", help="`flex`: slower calls at a lower price, where there are any."
    ),
)
"""How calls are made: directly or in batches."""

images = click.option(
    "--image",
    "--file",
    "image",
    metavar="PATH",
    multiple=True,
    help="An image or a PDF file that goes with the prompt; may be repeated.",
)

wait = click.option(
    "--wait",
    is_flag=True,
    help="Wait until an agent's usage limit ends, where it says when; else exit code 3.",
)
agent_in_tree_options = group_of(
    click.option(
        "--agent",
        metavar="NAME",
        help="A coding agent that gets the prompt, in place of a model: claude, codex, or one of "
        "[agents.NAME] in abreast.toml.",
    ),
    click.option(
        "--allow",
        metavar="WORD",
        multiple=True,
        help="What the agent may do: read, edit, run, everything, or a word of its own; may be "
        "repeated.  [read; with worktrees edit]",
    ),
    wait,
)
agent_options = group_of(
    agent_in_tree_options,
    click.option(
        "--worktree",
        is_flag=True,
        help="Work on each item in a copy of the working tree; `abreast plan apply` merges them.",
    ),
)

warm = click.option(
    "--warm",
    is_flag=True,
    help="Send one prompt ahead, so that the others find its long beginning cached.",
)
messages = click.option(
    "--messages",
    metavar="FILE",
    help="A JSON file with the conversation before PROMPT, or all of it: a list of messages.",
)

common = group_of(store, as_json, verbose)
"""Options of every command."""


def is_verbose() -> bool:
    """Whether -v was given."""
    root = click.get_current_context().find_root().obj
    return isinstance(root, Root) and root.verbose

"""`abreast map`: runs a command, a function or a prompt for every line of the input."""

import os
from typing import Any

import click

from abreast.cli import options
from abreast.cli.config import BUDGET, KEEP, MODEL, RETRIES, TIMEOUT, WIDTH, Config
from abreast.cli.errors import UsageError
from abreast.cli.jobs.driver import drive
from abreast.cli.jobs.map.driver import MapDriver
from abreast.cli.jobs.map.job import WHOLE_LINE, MapJob
from abreast.cli.jobs.request import new_request, read_number

_MODEL_OPTIONS = (
    "model",
    "system",
    "schema",
    "temperature",
    "max_tokens",
    "reasoning",
    "thinking_tokens",
    "lane_width",
    "cache",
    "warm",
    "image",
    "batch",
    "batch_fallback",
    "batch_wait",
    "tier",
)
_SETTINGS = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}


@click.command("map", context_settings=_SETTINGS)
@options.width
@click.option(
    "--input",
    "-a",
    "--arg-file",
    "input_file",
    metavar="FILE",
    help="Read the items from here, not from stdin.",
)
@click.option("--jsonl", is_flag=True, help="Each line is a JSON value; {.field} is a field of it.")
@click.option(
    "--null",
    "-0",
    is_flag=True,
    help="Items end with NUL, as `find -print0` writes them, not with a newline.",
)
@click.option(
    "--key",
    metavar="TEXT",
    help="The items' stable names, such as '{.id}'; by default their positions.",
)
@click.option(
    "--call",
    metavar="PKG.MOD:FN",
    help="Call this Python function with each item, instead of a command.",
)
@click.option(
    "--prompt",
    metavar="TEXT",
    help="Ask a model about each item, instead of a command; {} is the item.",
)
@click.option(
    "--messages",
    metavar="[{.FIELD}]",
    is_flag=False,
    flag_value=WHOLE_LINE,
    help="Each line is JSON with a conversation: a list of messages, or an object that has it as "
    "`messages`, or as that field. --prompt is the last message, if given.",
)
@options.model_options
@options.batch_options
@options.images
@click.option(
    "--cache",
    is_flag=True,
    help="Answer an equal request as it was answered before; see `abreast cache`.",
)
@options.warm
@click.option(
    "--executor",
    metavar="NAME",
    default="local",
    help="Where --call and commands work: local (default), ray (the nodes of a cluster; "
    "ray:GPU=1,CPU=4 for what each takes), or process (--call).",
)
@options.agent_options
@click.option("--halt", is_flag=True, help="End at the first failing item, in item order.")
@click.option("--until", metavar="N", help="End after so many successes, in item order.")
@options.retries
@options.timeout
@options.budget
@click.option(
    "--keep",
    metavar="SIZE",
    help="Keep so much of what an item writes to stdout, and to stderr.  [8MiB]",
)
@click.option("--name", metavar="TEXT", default="map", help="What the run is called.  [map]")
@click.option(
    "--tag",
    "tags",
    metavar="WORD",
    multiple=True,
    help="A word to find the run by; may be repeated.",
)
@click.option(
    "--seed", metavar="N", help="Makes the seeds of items repeatable; drawn if not given."
)
@click.option(
    "--keep-order", "-k", is_flag=True, hidden=True, expose_value=False
)  # GNU parallel's: it always is
@options.dry_run
@options.quiet
@options.common
@click.argument("arguments", metavar="[--] COMMAND [ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...], **given: Any) -> int:
    """Run COMMAND for every line of the input, side by side.

    In its arguments, {} is the line, {.field} a field of a JSON line, {#} the item's number, {key}
    its key, {attempt} the number of the attempt, {seed} the item's own seed; the line is added at
    the end if none of them names it. A value is one argument, whatever is in it, and never shell
    code. Empty lines are passed over. What the items write to stdout leaves in the order of the
    items. Everything is recorded: after a crash or Ctrl-C, `abreast resume` goes on.

    \b
      seq 100 | abreast map -P 8 -- curl -s https://example.com/{}
      abreast map --jsonl --key '{.id}' -- ./ask.sh {.question} < questions.jsonl
      abreast map --call package.module:function < lines
      abreast map --prompt 'Classify: {}' -m local/smollm2 --schema label.json < reviews.txt
      abreast map --messages -m openai/gpt-4o-mini < conversations.jsonl
      ls *.jpg | abreast map --prompt 'What is it?' --image {} -m anthropic/claude-sonnet-4-5
      abreast map --agent claude --worktree --prompt 'Add type hints to {}' < files

    The exit code is 0 if all are done, 1 if some failed, 2 for bad usage or input, 3 if a budget is
    spent, 4 if the run was cancelled, 130 after Ctrl-C.
    """  # noqa: D301 - click reads the character \b: the next paragraph is not wrapped
    config = Config.load()
    job = _job(config, arguments, given)
    request = new_request(config, given["name"], given)
    return drive(MapDriver(job, request), request)


def _job(config: Config, arguments: tuple[str, ...], given: dict[str, Any]) -> MapJob:
    source = given["input_file"]
    asked = _agent_options(given) if given["agent"] else _model_options(config, given)
    return MapJob(
        cwd=os.getcwd(),  # noqa: PTH109 - stored as text
        command=arguments,
        call=given["call"],
        jsonl=given["jsonl"] or given["messages"] is not None,
        null=given["null"],
        input=os.path.abspath(source) if source not in (None, "-") else None,  # noqa: PTH100 - text
        key=given["key"],
        width=_width(config, asked, given),
        halt=given["halt"],
        until=read_number("--until", given["until"]),
        retries=config.get(RETRIES, given["retries"]),
        timeout=config.get(TIMEOUT, given["timeout"]),
        budget=config.get(BUDGET, given["budget"]),
        executor=given["executor"],
        keep=config.get(KEEP, given["keep"]),
        prompt=given["prompt"],
        messages=given["messages"],
        agent=given["agent"],
        allow=given["allow"],
        worktree=given["worktree"],
        **asked,
    )


_AGENT_TAKES = ("model", "system", "schema", "lane_width")


def _agent_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of an agent's calls; raises `UsageError` for those that only models have."""
    from abreast.cli.jobs import model_options

    for name in (*_MODEL_OPTIONS, "messages"):
        if given[name] and name not in _AGENT_TAKES:
            raise UsageError(f"--{name.replace('_', '-')} is for models, and --agent is none")
    return {
        "model": given["model"],
        "system": given["system"],
        "schema": model_options.read_schema(given["schema"]),
        "lane_width": given["lane_width"],
    }


def _width(config: Config, model_options: dict[str, Any], given: dict[str, Any]) -> int:
    if not model_options or given["agent"]:
        return config.get(WIDTH, given["width"])
    from abreast.cli.jobs.map.prompt import width_for

    return width_for(config, model_options, given)


def _model_options(config: Config, given: dict[str, Any]) -> dict[str, Any]:
    """The options of the model's calls; raises `UsageError` for one given without --prompt."""
    if given["allow"]:
        raise UsageError("--allow is for --agent; write: abreast map --agent claude --prompt '...'")
    if given["prompt"] is None and given["messages"] is None:
        for name in _MODEL_OPTIONS:
            if given[name]:
                raise UsageError(
                    f"--{name.replace('_', '-')} is for --prompt; "
                    "write: abreast map --prompt 'Classify: {}'"
                )
        return {}
    if given["prompt"] is not None and not given["prompt"].strip():
        raise UsageError("--prompt is empty; write: abreast map --prompt 'Classify: {}' < lines")
    from abreast.cli.jobs import model_options

    return {
        "model": config.get(MODEL, given["model"]),
        "system": given["system"],
        "cache": given["cache"],
        "warm": given["warm"],
        "schema": model_options.read_schema(given["schema"]),
        "temperature": model_options.read_temperature(given["temperature"]),
        "max_tokens": read_number("--max-tokens", given["max_tokens"]),
        **model_options.read_thinking(given),
        "lane_width": given["lane_width"],
        "images": given["image"],
        "calls": model_options.read_call_mode(given),
    }

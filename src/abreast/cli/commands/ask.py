"""`abreast ask`: asks a model one question, and prints the reply as it is received."""

import asyncio
import sys
from typing import Any

import click

from abreast.cli import options
from abreast.cli.config import MODEL, SEED, Config
from abreast.cli.errors import FAILED, UsageError, one_line, tell
from abreast.cli.jobs.model_options import (
    configured_lanes,
    open_named,
    read_schema,
    read_temperature,
    reply_as_json,
)
from abreast.cli.jobs.request import read_number
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.outcome_text import json_line
from abreast.cli.terminal.printer import STDOUT, write_all
from abreast.core.errors import CallFailed
from abreast.core.outcome import tokens_in_words
from abreast.models.port import Reply


@click.command("ask")
@options.model_options
@click.option("--seed", metavar="N", help="For models that take one.")
@options.quiet
@options.common
@click.argument("question", metavar="PROMPT")
def command(*, question: str, **given: Any) -> int:
    """Ask a model one question, and print its reply as it comes. PROMPT may be - for stdin.

    \b
      abreast ask "Name three colours."
      abreast ask -m anthropic/claude-sonnet-4-5 --system "Be brief." - < question.txt

    Keys come from the environment (OPENAI_API_KEY, ...) or from where abreast.toml says, never from
    the command line.
    """  # noqa: D301 - click wants the character itself
    config = Config.load()
    text = _stdin() if question == "-" else question
    if not text.strip():
        raise UsageError("the prompt is empty; write: abreast ask PROMPT")
    call_options = {
        "system": given["system"],
        "schema": read_schema(given["schema"]),
        "seed": config.get(SEED, given["seed"]),
        "temperature": read_temperature(given["temperature"]),
        "max_tokens": read_number("--max-tokens", given["max_tokens"]),
    }
    name = config.get(MODEL, given["model"])
    choice = StoreChoice(config, given["store"])
    lanes = configured_lanes(config, given["lane_width"])
    with choice.existing() if name.startswith("replay/") else choice.look() as store:
        model = open_named(name, lanes, store)
        streams = not given["as_json"] and call_options["schema"] is None
        try:
            reply = asyncio.run(_ask(model, text, call_options, streams=streams))
        except CallFailed as error:
            tell(one_line(str(error)))
            return FAILED
    _print(reply, as_json=given["as_json"], streamed=streams)
    if not given["quiet"] and not given["as_json"] and sys.stderr.isatty():
        tell(_summary(reply))
    return 0


async def _ask(model: Any, text: str, call_options: dict[str, Any], *, streams: bool) -> Reply:  # noqa: ANN401 - a Caller
    def hear(piece: str) -> None:
        write_all(STDOUT, piece.encode("utf-8", "replace"))

    async with model:
        reply: Reply = await model.ask(text, hear=hear if streams else None, **call_options)
    return reply


def _print(reply: Reply, *, as_json: bool, streamed: bool) -> None:
    if as_json:
        text = json_line(reply_as_json(reply))
    elif streamed:
        text = ""
    else:
        text = json_line({"value": reply.value})[len('{"value":') : -1]
    write_all(STDOUT, f"{text}\n".encode("utf-8", "replace"))


def _summary(reply: Reply) -> str:
    used = reply.usage
    cost = "unknown cost" if used.usd is None else f"{used.usd:.6g} usd"
    changed = f"; sent {', '.join(reply.changed)}" if reply.changed else ""
    return f"{tokens_in_words(used)}, {cost}, {reply.seconds:.2f} s ({reply.model}){changed}"


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("the prompt on stdin is not UTF-8; convert it") from None

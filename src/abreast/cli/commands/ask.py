"""`abreast ask`: asks a model one question, and prints the reply as it is received."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import click

from abreast.cli import options
from abreast.cli.config import MODEL, SEED, Config
from abreast.cli.errors import FAILED, UsageError, one_line, refusing, tell
from abreast.cli.jobs.model_options import (
    check_sees,
    configured_lanes,
    open_named,
    read_images,
    read_schema,
    read_talk,
    read_temperature,
    read_thinking,
    reply_as_json,
)
from abreast.cli.jobs.request import read_number
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.outcome_text import json_line
from abreast.cli.terminal.printer import STDOUT, write_all
from abreast.core.errors import CallFailed
from abreast.core.outcome import tokens_in_words
from abreast.models.conversation import has_files, make_conversation
from abreast.models.port import Reply
from abreast.run.calls.model import Caller
from abreast.run.calls.outage import LaneOutage

NOTICE_AFTER: Final = 3.0  # seconds without an answer until an outage is told


@click.command("ask")
@options.model_options
@options.images
@options.messages
@click.option("--seed", metavar="N", help="For models that take one.")
@options.quiet
@options.common
@click.argument("question", metavar="PROMPT", required=False)
def command(*, question: str | None, **given: Any) -> int:
    """Ask a model one question, and print its reply as it comes. PROMPT may be - for stdin.

    \b
      abreast ask "Name three colours."
      abreast ask -m anthropic/claude-sonnet-4-5 --system "Be brief." - < question.txt
      abreast ask -m openai/gpt-4o-mini --image photo.jpg "What is in this picture?"
      abreast ask --messages talk.json "And twice that?"

    Keys come from the environment (OPENAI_API_KEY, ...) or from where abreast.toml says, never from
    the command line.
    """  # noqa: D301 - click wants the character itself
    config = Config.load()
    text = _stdin() if question == "-" else question
    talk = read_talk(given["messages"])
    if not (text or "").strip() and (talk is None or text is not None):
        raise UsageError("the prompt is empty; write: abreast ask PROMPT")
    call_options = {
        "system": given["system"],
        "schema": read_schema(given["schema"]),
        "seed": config.get(SEED, given["seed"]),
        "temperature": read_temperature(given["temperature"]),
        "max_tokens": read_number("--max-tokens", given["max_tokens"]),
        "files": read_images(given["image"]),
        "messages": talk,
        **read_thinking(given),
    }
    if talk is not None:
        with refusing("--messages"):
            make_conversation(text, talk, call_options["files"], system=given["system"])
    name = config.get(MODEL, given["model"])
    choice = StoreChoice(config, given["store"])
    lanes = configured_lanes(config, given["lane_width"])
    if given["image"] or (talk and has_files(talk)):
        check_sees(name, lanes)
    with choice.existing() if name.startswith("replay/") else choice.look() as store:
        model = open_named(name, lanes, store, mode="direct")
        streams = not given["as_json"] and call_options["schema"] is None
        quiet = given["quiet"]
        try:
            reply = asyncio.run(_ask(model, text, call_options, streams=streams, quiet=quiet))
        except CallFailed as error:
            tell(one_line(str(error)))
            return FAILED
    _print(reply, as_json=given["as_json"], streamed=streams)
    if not given["quiet"] and not given["as_json"] and sys.stderr.isatty():
        tell(_summary(reply))
    return 0


class OutageNotice:
    """Says once, after a few seconds, that a provider is down and that its answer is waited for."""

    def __init__(
        self, outage: LaneOutage, later: Callable[[float, Callable[[], None]], Any]
    ) -> None:
        """`later` calls a function after so many seconds, and returns how to cancel that."""
        self._outage = outage
        self._later = later
        self._timer = later(NOTICE_AFTER, self._look)

    def _look(self) -> None:
        reason = self._outage.reason
        if reason is None:
            self._timer = self._later(NOTICE_AFTER, self._look)
            return
        tell(
            f"waiting, up to {self._outage.longest:g} s, for a provider that is down: "
            f"{one_line(reason)}"
        )

    def cancel(self) -> None:
        """Say nothing from now on."""
        self._timer.cancel()


async def _ask(
    model: Caller, text: str | None, call_options: dict[str, Any], *, streams: bool, quiet: bool
) -> Reply:
    def hear(piece: str) -> None:
        write_all(STDOUT, piece.encode("utf-8", "replace"))

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(model)
        if not quiet:
            later = asyncio.get_running_loop().call_later
            stack.callback(OutageNotice(model.lane.outage, later).cancel)
        return await model.ask(text, hear=hear if streams else None, **call_options)


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

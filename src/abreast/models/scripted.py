"""A model with predefined replies, for tests without network and weights."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from abreast.core import errors
from abreast.core.clock import SYSTEM_CLOCK, Clock, sleep_until
from abreast.core.errors import CallFailed, RequestRefused
from abreast.core.outcome import Usage
from abreast.models.estimate import media_tokens_in, tokens_of
from abreast.models.port import OnText, Reply, Request
from abreast.models.schema import parse

# A text, a whole reply, or an error to raise.
Line: TypeAlias = str | Reply | BaseException | type[BaseException]
Script: TypeAlias = (
    Mapping[str, Line | Sequence[Line]]
    | Sequence[Line]
    | Callable[[Request], Line]
    | os.PathLike[str]
)


class Scripted:
    """A model with predefined replies.

    `calls` has the requests made.

        model = ScriptedModel({"2+2?": "4", "hard": [ServerFault("try again"), "42"]})

    Args:
        script: its lines, each a text, a `Reply`, or an error to raise. A mapping has a line for
            each prompt (the last user's turn), or a list of lines for its first, second, third
            call; the last line is repeated. A list has a line for each call, whatever the request.
            A function is called with the request. A path is a file of JSON lines with `prompt` and
            `reply`, or with `prompt`, `error` (such as "Throttled") and `message`.
        name: the model's name, as `provider/model`.
        default: the line for a prompt that has none; else that raises RequestRefused.
        latency: seconds of its clock that a reply takes.
        clock: for tests in virtual time.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted/model",
        default: Line | None = None,
        latency: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.calls: list[Request] = []
        self._next_line = _line_source(
            _from_file(script) if isinstance(script, os.PathLike) else script
        )
        self._default = default
        self._latency = latency
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Scripted {self.name}, {len(self.calls)} calls>"

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Reply with the next line, after `latency` seconds of its clock; `hear` gets each word."""
        self.calls.append(request)
        start = self._clock.now()
        # Before any wait: the line depends on the order in which calls start, not on that in which
        # they end.
        line = self._next_line(request)
        if self._latency:
            await sleep_until(self._clock, start + self._latency)
        line = self._default if line is None else line
        if line is None:
            raise RequestRefused(f"{self.name} has no line for {prompt_of(request)[:200]!r}")
        if isinstance(line, BaseException):
            raise copy.copy(
                line
            )  # a copy, as the traceback of one object grows each time it is raised
        if isinstance(line, type):
            raise line(f"{self.name} was told to fail")
        reply = (
            line
            if isinstance(line, Reply)
            else self._reply(line, request, self._clock.now() - start, hear)
        )
        if hear is not None:
            for word in _pieces(reply.text):
                hear(word)
        return reply

    async def close(self) -> None:
        """Do nothing: it has no connections."""

    def _reply(self, text: str, request: Request, seconds: float, hear: OnText | None) -> Reply:
        schema = request.schema
        value = None if schema is None else parse(text, schema, who=f"the reply of {self.name}")
        texts = [request.system or "", *(message.content for message in request.messages)]
        sent = sum(map(tokens_of, texts)) + media_tokens_in(request)
        usage = Usage(1, sent, tokens_of(text), None, estimate=True)
        first = None if hear is None else seconds
        return Reply(text, value, usage=usage, model=self.name, seconds=seconds, first_token=first)


def prompt_of(request: Request) -> str:
    """The last user's turn."""
    return next((each.content for each in reversed(request.messages) if each.role == "user"), "")


def _line_source(
    script: Mapping[str, Line | Sequence[Line]] | Sequence[Line] | Callable[[Request], Line],
) -> _LineSource:
    if callable(script):
        return script
    if isinstance(script, Mapping):
        lines = {
            prompt: given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
            for prompt, given in script.items()
        }
        turns: dict[str, int] = {}

        def by_prompt(request: Request) -> Line | None:
            prompt = prompt_of(request)
            choices = lines.get(prompt)
            turns[prompt] = turn = turns.get(prompt, -1) + 1
            return choices[min(turn, len(choices) - 1)] if choices else None

        return by_prompt
    if isinstance(script, str):
        raise ValueError("a script is a mapping, a list, a function or a Path, not a text")
    rest = iter(tuple(script))
    return lambda _request: next(rest, None)


_LineSource: TypeAlias = Callable[[Request], Line | None]


def _from_file(path: os.PathLike[str]) -> dict[str, list[Line]]:
    """The lines of a file; a repeated prompt has its next line there."""
    script: dict[str, list[Line]] = {}
    with Path(path).open(encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                prompt, line = _line(text, f"{path}, line {number}")
                script.setdefault(prompt, []).append(line)
    return script


def _line(text: str, where: str) -> tuple[str, Line]:
    try:
        entry = json.loads(text)
        prompt = entry["prompt"]
        if "error" not in entry:
            reply = entry["reply"]
            return prompt, reply if isinstance(reply, str) else json.dumps(reply)
        kind = _ERRORS[entry["error"]]
        return prompt, kind(entry.get("message", f"told to fail in {where}"))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(
            f"{where}: not an object with prompt and reply, or prompt and the name of an error"
        ) from None


_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, CallFailed)
}


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word for word in (*(f"{word} " for word in words[:-1]), words[-1]) if word]

"""The answers of a storm: replies, the same for the same request, and how faults break them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from operator import getitem
from typing import Any, TypeAlias

from abreast.testing.storm.dialects.dialect import (
    BadRequest,
    Dialect,
    Json,
    StormDraft,
    StormRequest,
    encode,
    sse_event,
)
from abreast.testing.storm.world import StormVerdict

# A text for each prompt; None, or a missing prompt, for a generated reply.
Script: TypeAlias = Mapping[str, str] | Callable[[str], str | None]

# Three letters and a space are one token, as tokens are counted in a storm.
_VOCABULARY = (
    "air arc bay bow cup day dew ebb elm fog gem hay ice ink jar jet key kit lap log map mud net "
    "nut oak oar pen pin ray rib sea sky tar tea urn van web wax yak yew zip zoo ash bud cap den "
    "eel fin gap hut ivy jam keg lid nib orb pot rye sap tin"
)
_WORDS = [f"{word} " for word in _VOCABULARY.split() * 5][:256]  # one for each byte
_CYCLE_WORDS = 16  # words until they repeat
HUGE = 10_000_000  # bytes
JSON = "application/json"
HTML = "text/html"
SSE = "text/event-stream"
_PAGE = b"<!doctype html><title>Storm</title><h1>Something went wrong</h1>"
_MESSAGES = {
    "401": "The API key is not valid.",
    "403": "This key has no permission for that.",
    "404": "There is no model of that name.",
    "context": "The context of this model holds 8192 tokens; the request has more.",
    "per_day": "The quota of the day is used up; see your plan and billing.",
    "concurrency": "Too many concurrent requests: wait for one to end.",
    "oversize": "The request is too large: it has more tokens than the limit could ever allow.",
    "rpm": "The limit of requests per minute is reached.",
    "tpm": "The limit of tokens per minute is reached.",
    "input_tpm": "The limit of input tokens per minute is reached.",
    "output_tpm": "The limit of output tokens per minute is reached.",
}


def fixed_text(
    ask: StormRequest, reply: str, script: Script | None, *, agrees: bool = False
) -> str | None:
    """The text of a reply that doesn't depend on its length; None if it is to be generated.

    With `agrees` it is yes where the prompt asks for yes or no, as judges do.
    """
    if ask.tool is not None:
        return _scripted_arguments(ask.tool[0], ask.prompt) or _fill_schema(ask.tool[1])
    if script is not None:
        answer = script(ask.prompt) if callable(script) else script.get(ask.prompt)
        if answer is not None:
            return answer
    if ask.schema is not None:
        return _fill_schema(ask.schema)
    if agrees and "yes or no" in ask.prompt.lower():
        return "yes"
    return ask.prompt if reply == "echo" else None


def _scripted_arguments(tool: str, prompt: str) -> str | None:
    """The arguments that a prompt gives a tool: `call Bash with {"command": "make"}`."""
    found = prompt.find(f"call {tool} with {{")
    if found < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(prompt, prompt.index("{", found))
    except ValueError:
        return None
    return json.dumps(value)


def _fill_schema(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(instance(schema))
    except (AttributeError, KeyError, IndexError, RecursionError, TypeError) as error:
        raise BadRequest(f"a storm follows simple schemas only: {error!r}") from None


def make_draft(ask: StormRequest, verdict: StormVerdict, text: str | None) -> StormDraft:
    """The reply that a verdict allows: the text, cut to its tokens, or generated words."""
    reasoning = min(ask.reasoning_tokens, verdict.output_tokens)
    visible = verdict.output_tokens - reasoning
    answer = words(ask.key, visible) if text is None else text
    if verdict.cut and text is not None:
        answer = text[: 4 * visible]
    refused = verdict.fault is not None and verdict.fault.name == "refusal"
    tool = ask.tool[0] if ask.tool is not None and visible and not refused else ""
    finish = "refusal" if refused else "length" if verdict.cut else "tool" if tool else "stop"
    return StormDraft(
        verdict.id,
        answer,
        finish,
        verdict.input_tokens,
        verdict.output_tokens,
        tool,
        reasoning,
    )


def words(key: str, tokens: int) -> str:
    """So many words, chosen by a digest of the key.

    >>> len(words("a", 100).split())
    100
    """
    drawn = blake2b(key.encode(), digest_size=_CYCLE_WORDS).digest()
    text = "".join([_WORDS[byte] for byte in drawn])
    return (text * (tokens // _CYCLE_WORDS + 1))[: max(0, 4 * tokens - 1)]


def split_text(text: str, most: int) -> list[str]:
    """Split a text into at most so many pieces of about the same length, none of them empty."""
    size = max(4, -(-len(text) // most))
    return [text[at : at + size] for at in range(0, len(text), size)]


def instance(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """A minimal value for a simple JSON schema: every property, the first of each choice.

    >>> instance({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}})
    {'n': 3}
    """
    root = schema if root is None else root
    if isinstance(ref := schema.get("$ref"), str):
        return instance(reduce(getitem, ref.removeprefix("#/").split("/"), root), root)
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return instance(schema[name][0], root)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    return _instance_of_type(schema, root)


def _instance_of_type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    kind = schema.get("type", "object")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        return {name: instance(inner, root) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [instance(schema.get("items", {}), root) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return "word".ljust(schema.get("minLength", 0), "s")[: schema.get("maxLength")]
    told = re.search(r"minimum: (\d+)", schema.get("description", ""))  # a model reads it
    low = int(told[1]) if told else schema.get("exclusiveMinimum", -1) + 1
    number = schema.get("minimum", low)
    return {"integer": number, "number": number, "boolean": True}.get(kind)


@dataclass(frozen=True, slots=True)
class StormAnswer:
    """What is sent to the client.

    `parts` are sent one after the other: a whole body is one part, a stream has one for each event.
    `ends` is how it ends: well, by a lost connection, or never. `missing` bytes are announced and
    never sent.
    """

    status: int
    kind: str
    parts: Sequence[bytes]
    ends: str = "well"
    missing: int = 0


def error_answer(dialect: Dialect, verdict: StormVerdict) -> StormAnswer:
    """The answer to a request that was refused or failed."""
    kind = verdict.kind or (verdict.fault.name if verdict.fault is not None else "")
    if kind == "502":
        return StormAnswer(verdict.status, HTML, [_PAGE])
    message = _MESSAGES.get(kind, "The server had an error.")
    body = dialect.error(verdict.status, kind, message, verdict.retry_after)
    return StormAnswer(verdict.status, JSON, [to_json(body)])


def reply_answer(
    dialect: Dialect, ask: StormRequest, verdict: StormVerdict, text: str | None, chunks: int
) -> StormAnswer:
    """The answer to a request that was admitted."""
    draft = make_draft(ask, verdict, text)
    fault = verdict.fault.name if verdict.fault is not None else ""
    if fault == "html":
        return StormAnswer(200, HTML, [_PAGE])
    if fault == "huge":
        draft = draft._replace(text=(draft.text + " ") * (HUGE // (len(draft.text) + 1) + 1))
    if ask.stream:
        return _break_stream(
            list(_stream(dialect, ask, draft, chunks, empty=fault == "empty")), fault
        )
    body: Json = dialect.empty(ask, draft) if fault == "empty" else dialect.reply(ask, draft)
    return _break_body(to_json(body), fault)


def to_json(body: Json) -> bytes:
    """Encode a body as JSON."""
    return encode(body).encode()


def _stream(
    dialect: Dialect, ask: StormRequest, draft: StormDraft, chunks: int, *, empty: bool
) -> Iterator[bytes]:
    pieces = split_text(draft.text, chunks)
    events = [("", dialect.empty(ask, draft))] if empty else dialect.events(ask, draft, pieces)
    yield from map(sse_event, events)
    if dialect.done:
        yield dialect.done.encode()


def _break_stream(parts: list[bytes], fault: str) -> StormAnswer:
    half = parts[: max(1, len(parts) // 2)]
    if fault == "malformed":
        return StormAnswer(200, SSE, [*half, b'data: {"choices": [{"delta": nonsense\n\n'])
    if fault in _ENDS:
        return StormAnswer(200, SSE, half, _ENDS[fault])
    return StormAnswer(200, SSE, parts)


def _break_body(body: bytes, fault: str) -> StormAnswer:
    half = body[: len(body) // 2]
    if fault == "malformed":
        return StormAnswer(200, JSON, [b'{"choices": [nonsense, ' + half[:40]])
    if fault in _ENDS:
        missing = 0 if fault == "truncated" else len(body) - len(half)
        return StormAnswer(200, JSON, [half], _ENDS[fault], missing)
    return StormAnswer(200, JSON, [body])


_ENDS = {"truncated": "well", "reset-body": "lost", "stall-body": "never"}

"""The bytes of an answer, whole or as a stream: correct, or broken as the verdict says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abreast.testing.storm.dialects.dialect import (
    Dialect,
    Json,
    StormDraft,
    StormRequest,
    encode,
    sse_event,
)
from abreast.testing.storm.dialects.replies import HUGE, make_draft, split_text
from abreast.testing.storm.world import StormVerdict

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
    if empty:
        yield sse_event(("", dialect.empty(ask, draft)))
    else:
        for event in dialect.events(ask, draft, split_text(draft.text, chunks)):
            yield sse_event(event)
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
    if fault == "truncated":
        return StormAnswer(200, JSON, [half])
    if fault in _ENDS:
        return StormAnswer(200, JSON, [half], _ENDS[fault], len(body) - len(half))
    return StormAnswer(200, JSON, [body])


_ENDS = {"truncated": "well", "reset-body": "lost", "stall-body": "never"}

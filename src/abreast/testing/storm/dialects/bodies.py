"""The bytes of an answer, whole or in pieces, as a verdict wants them: right, or wrong in the way it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abreast.testing.storm.dialects.dialect import (
    Dialect,
    Json,
    StormDraft,
    StormRequest,
    encode,
    line_of,
)
from abreast.testing.storm.dialects.replies import HUGE, drafted, pieces_of
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
    """What goes over the wire.

    `parts` are sent one after the other: one of a whole body, each event of a stream.

    `ends` is how: well, by a lost connection, or not at all. `missing` bytes are promised and never come.
    """

    status: int
    kind: str
    parts: Sequence[bytes]
    ends: str = "well"
    missing: int = 0


def error_answer(shape: Dialect, verdict: StormVerdict) -> StormAnswer:
    """The answer to a request that was refused or failed."""
    kind = verdict.kind or (verdict.fault.name if verdict.fault is not None else "")
    if kind == "502":
        return StormAnswer(verdict.status, HTML, [_PAGE])
    message = _MESSAGES.get(kind, "The server had an error.")
    body = shape.error(verdict.status, kind, message, verdict.retry_after)
    return StormAnswer(verdict.status, JSON, [dumped(body)])


def reply_answer(
    shape: Dialect, ask: StormRequest, verdict: StormVerdict, text: str | None, chunks: int
) -> StormAnswer:
    """The answer to a request that was let in."""
    draft = drafted(ask, verdict, text)
    fault = verdict.fault.name if verdict.fault is not None else ""
    if fault == "html":
        return StormAnswer(200, HTML, [_PAGE])
    if fault == "huge":
        draft = draft._replace(text=(draft.text + " ") * (HUGE // (len(draft.text) + 1) + 1))
    if ask.stream:
        return _broken_stream(
            list(_stream(shape, ask, draft, chunks, bare=fault == "empty")), fault
        )
    body: Json = shape.empty(ask, draft) if fault == "empty" else shape.reply(ask, draft)
    return _broken_whole(dumped(body), fault)


def dumped(body: Json) -> bytes:
    """A body of JSON."""
    return encode(body).encode()


def _stream(
    shape: Dialect, ask: StormRequest, draft: StormDraft, chunks: int, *, bare: bool
) -> Iterator[bytes]:
    if bare:
        yield line_of(("", shape.empty(ask, draft)))
    else:
        for event in shape.events(ask, draft, pieces_of(draft.text, chunks)):
            yield line_of(event)
    if shape.done:
        yield shape.done.encode()


def _broken_stream(parts: list[bytes], fault: str) -> StormAnswer:
    half = parts[: max(1, len(parts) // 2)]
    if fault == "malformed":
        return StormAnswer(200, SSE, [*half, b'data: {"choices": [{"delta": nonsense\n\n'])
    if fault in _ENDS:
        return StormAnswer(200, SSE, half, _ENDS[fault])
    return StormAnswer(200, SSE, parts)


def _broken_whole(body: bytes, fault: str) -> StormAnswer:
    half = body[: len(body) // 2]
    if fault == "malformed":
        return StormAnswer(200, JSON, [b'{"choices": [nonsense, ' + half[:40]])
    if fault == "truncated":
        return StormAnswer(200, JSON, [half])
    if fault in _ENDS:
        return StormAnswer(200, JSON, [half], _ENDS[fault], len(body) - len(half))
    return StormAnswer(200, JSON, [body])


_ENDS = {"truncated": "well", "reset-body": "lost", "stall-body": "never"}

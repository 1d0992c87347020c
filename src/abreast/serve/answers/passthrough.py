"""Passes a request on to a provider of the same API, and the answer back, byte for byte."""

import json
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import CallFailed
from abreast.models.http.client import Exchange, HttpAnswer
from abreast.models.port import OnText, Reply, Request, ToolCall
from abreast.models.providers.errors import fault_in
from abreast.models.providers.provider import Document, EventFold, Events, Provider
from abreast.models.providers.reply_draft import MALFORMED, ReplyDraft, checked
from abreast.serve.answers.outlet import EVENTS, JSON, Outlet
from abreast.serve.answers.stream_usage import StreamUsage, UsageFilter

_OK: Final = range(200, 300)
_INVALID: Final = (400, 422)
_UNREADABLE: Final = (*MALFORMED, CallFailed)
# Of the answer's headers, those by which people find a request at the provider.
_PASSED: Final[tuple[str, ...]] = ("x-request-id", "request-id", "openai-processing-ms", "cf-ray")
_BARE: Final = Request(())  # what a reply is read with: nothing of it is changed by a schema


class BodyWriter(Protocol):
    """Writes the body of a request."""

    def __call__(self, max_tokens: int | None, *, usage: bool) -> bytes:
        """With a bound on the reply's tokens if a budget needs one, and asking for usage or not."""


class RelayedModel:
    """A model for one call: it sends a given body, and writes the answer to its outlet.

    The reply that it returns is for lane, budgets and journal. A 429, or another error before the
    first byte, is raised as any model raises it, so the call may be tried again; the last such
    answer is `refusal`.
    """

    def __init__(
        self,
        provider: Provider,
        body: BodyWriter,
        headers: Mapping[str, str],
        outlet: Outlet,
        *,
        stream: bool,
        usage: StreamUsage | None = None,
    ) -> None:
        """With `usage`, that of a stream is asked for, and not shown to the client."""
        self.name = provider.name
        self.refusal: HttpAnswer | None = None
        self._provider = provider
        self._body = body
        self._headers = headers
        self._outlet = outlet
        self._stream = stream
        self._usage = usage

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Send the body; the request serves to estimate what it takes."""
        began = SYSTEM_CLOCK.now()
        exchange = await self._send(request.max_tokens)
        try:
            if exchange.status not in _OK:
                self.refusal = await exchange.answer()
                raise self._provider.raw_fault(self.refusal)
            if EVENTS in exchange.headers.get("content-type", ""):
                draft = await self._relay_events(exchange, hear or _ignore)
                await exchange.drain()
            else:
                draft = await self._relay_whole(exchange)
        finally:
            exchange.close()
        clean = self._provider.clean  # a reply is recorded, and must not contain the key
        return Reply(
            clean(draft.text),
            tool_calls=tuple(
                ToolCall(clean(call.id), clean(call.name), clean(call.arguments))
                for call in draft.tool_calls
            ),
            usage=self._provider.usage(request, draft),
            finish=draft.finish,
            model=draft.model,
            id=draft.id,
            seconds=SYSTEM_CLOCK.now() - began,
            headers=exchange.headers,
        )

    def _send(self, max_tokens: int | None) -> Awaitable[Exchange]:
        usage = self._usage
        if usage is not None and not usage.refused:
            return self._send_asking_usage(max_tokens, usage)
        body = self._body(max_tokens, usage=False)
        return self._provider.send_raw(body, self._headers, stream=self._stream)

    async def _send_asking_usage(self, max_tokens: int | None, usage: StreamUsage) -> Exchange:
        """Send the body; once more without asking for usage, if a provider refuses that."""
        body = self._body(max_tokens, usage=True)
        exchange = await self._provider.send_raw(body, self._headers, stream=self._stream)
        if exchange.status not in _INVALID:
            return exchange
        try:
            refusal = await exchange.answer()
        except CallFailed:
            exchange.close()
            raise
        if b"stream_options" not in refusal.body and b"include_usage" not in refusal.body:
            return exchange
        exchange.close()
        body = self._body(max_tokens, usage=False)
        exchange = await self._provider.send_raw(body, self._headers, stream=self._stream)
        usage.refused = exchange.status in _OK
        return exchange

    async def close(self) -> None:
        """Does nothing: the provider is not its own."""

    def _begin(self, exchange: Exchange) -> None:
        headers = {name: exchange.headers[name] for name in _PASSED if name in exchange.headers}
        kind = exchange.headers.get("content-type", JSON)
        self._outlet.begin(exchange.status, kind, headers)

    async def _relay_whole(self, exchange: Exchange) -> ReplyDraft:
        answer = await exchange.answer()
        self._begin(exchange)
        self._outlet.send(answer.body)
        try:
            return checked(self._provider.read(json.loads(answer.body), _BARE))
        except _UNREADABLE:  # it is the client's to judge; what it used is estimated
            return ReplyDraft(finish="other")

    async def _relay_events(self, exchange: Exchange, hear: OnText) -> ReplyDraft:
        events, fold = Events(), self._provider.fold(_BARE)
        begun = False
        hidden = None if self._usage is None else UsageFilter()
        while part := await exchange.read():
            found = events.feed(part)
            if not begun:
                self._check_first(found)
                self._begin(exchange)
                begun = True
                hear("")  # from here on the call can't be tried again
            if shown := part if hidden is None else hidden.feed(part):
                self._outlet.send(shown)
            for data in found:
                if piece := _add(fold, data):
                    hear(piece)
            await self._outlet.room()
        if not begun:
            self._begin(exchange)
        if hidden is not None and (rest := hidden.end()):
            self._outlet.send(rest)
        with suppress(*_UNREADABLE):
            return checked(fold.finished())
        used = fold.draft
        return ReplyDraft(
            finish="other", input_tokens=used.input_tokens, output_tokens=used.output_tokens
        )

    def _check_first(self, events: list[bytes]) -> None:
        """Raise the error that a stream consists of: it may be tried again."""
        if not events:
            return
        with suppress(ValueError, RecursionError):
            document = json.loads(events[0])
            if isinstance(document, dict) and document.get("error"):
                fault = fault_in(self.name, document, clean=self._provider.clean)
                if fault is not None:
                    raise fault


def _add(fold: EventFold, data: bytes) -> str:
    """Add an event to the reply; one that can't be read is the client's to judge."""
    try:
        document: Document = json.loads(data)
        piece = fold.take(document)
    except _UNREADABLE:
        return ""
    if piece:
        fold.pieces.append(piece)
    return piece


def _ignore(_: str) -> None:
    pass

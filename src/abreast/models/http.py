"""How adapters reach their providers: one attempt per call over aiohttp, capped, timed, and closed when cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypedDict
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    ReplyTimeout,
    RequestRefused,
)
from abreast.core.outcome import Usage
from abreast.models.faults import RAW, fault_in, fault_of, one_line, raw_of
from abreast.models.port import Finish, Hear, Json, Reply, Request, ToolCall
from abreast.models.schema import check_schema, parse

Document = dict[str, Any]
LARGEST = 8 * 1024 * 1024
DONE = b"[DONE]"
_KEEP_ALIVE = 30.0
_DRAIN = 0.2  # seconds that a stream has to end after its end marker; else its connection is not used again
_SHORTEST = 4  # a shorter secret is in every other word
_BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError)
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_now = SYSTEM_CLOCK.now


class Wire(TypedDict, total=False):
    """Options of every adapter: seconds to connect, seconds without a byte, seconds in all; bytes of a reply."""

    connect: float
    stall: float
    total: float | None
    largest: int
    headers: Mapping[str, str]


class Http:
    """A provider's connections. Sessions are made when they are first needed, one for each event loop.

    `auth` and the values of `headers` are secrets: none is ever in an error. `version` is a header that is none.
    """

    def __init__(
        self,
        name: str,
        auth: Mapping[str, str],
        *,
        version: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        connect: float = 30.0,
        stall: float = 600.0,
        total: float | None = None,
        largest: int = LARGEST,
    ) -> None:
        self.name = name
        self.largest = largest
        secret = {**auth, **(headers or {})}
        for key, value in secret.items():
            if not (value.isascii() and value.isprintable() and value.strip() == value):
                raise ValueError(f"{name}: the value of {key} has a line break, a space or an odd character in it")
        plain = {value.removeprefix("Bearer ") for value in secret.values()}
        escaped = {json.dumps(value)[1:-1] for value in plain}
        self._secrets = sorted((each for each in plain | escaped if len(each) >= _SHORTEST), key=len, reverse=True)
        self._headers = {"content-type": "application/json", **dict([version] if version else []), **secret}
        self._timeout = aiohttp.ClientTimeout(total=total, connect=connect, sock_read=stall)
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    def __repr__(self) -> str:
        """Whose it is, and whether it is in use."""
        return f"<Http of {self.name}, {len(self._sessions)} sessions>"

    async def post(self, url: URL, body: bytes) -> Answer:
        """Send a body and read the whole answer, whatever its status; an error beneath CallFailed if there is none."""
        exchange = await self.open(url, body)
        try:
            whole = exchange.at_hand()
            return Answer(exchange.status, exchange.headers, await exchange.whole() if whole is None else whole)
        except BaseException:
            exchange.close()
            raise

    async def open(self, url: URL, body: bytes) -> Exchange:
        """Send a body and read the headers of the answer. Whoever opens it closes it."""
        try:
            session = self._sessions.get(asyncio.get_running_loop()) or self._session()
            return Exchange(self, await session.post(url, data=body, allow_redirects=False))
        except (*_BROKEN, ValueError) as error:
            failure = self.failure(error, b"", url.host)
        raise failure  # here, where the error that holds the request's headers is no context of it any more

    async def close(self) -> None:
        """Close the connections of this loop; the next call would open new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def _session(self) -> aiohttp.ClientSession:
        self._sessions = {loop: old for loop, old in self._sessions.items() if not loop.is_closed()}
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
            headers=self._headers,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            trust_env=False,
        )
        self._sessions[asyncio.get_running_loop()] = session
        return session

    # --- errors

    def clean(self, text: str) -> str:
        """A text without secrets, should a server have sent them back."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def broken(self, what: str, body: bytes, status: int | None = None) -> ReplyBroken:
        """The error for a reply that can't be read."""
        return ReplyBroken(f"{self.name} sent a reply that can't be read: {what}", status=status, raw=self.raw(body))

    def raw(self, body: bytes) -> str:
        """What is kept of a body."""
        return raw_of(body, self.clean)

    def failure(self, error: BaseException, body: bytes, host: str | None = None) -> CallFailed:
        """The error for a connection or an answer that failed, with what had come until then."""
        if isinstance(error, TimeoutError):
            what = "connection" if isinstance(error, aiohttp.ConnectionTimeoutError) else "whole reply"
            return ReplyTimeout(f"{self.name}: no {what} in time", raw=self.raw(body))
        reason = one_line(self.clean(getattr(error, "strerror", None) or str(error) or type(error).__name__))
        if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
            return self.broken(f"no HTTP ({reason})", body)
        if isinstance(error, ValueError):
            return RequestRefused(f"{self.name}: there is no address like {host!r}")
        if isinstance(error, aiohttp.ClientPayloadError):
            return ConnectionLost(
                f"{self.name}: the connection was lost before the reply was whole", raw=self.raw(body)
            )
        where = f" to {host}" if host else ""
        return ConnectionLost(f"{self.name}: the connection{where} was lost: {reason}", raw=self.raw(body))


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of a server."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Exchange:
    """An answer whose headers are there, and whose body is being read."""

    __slots__ = ("_http", "_parts", "_response", "_size", "headers", "status")

    def __init__(self, http: Http, response: aiohttp.ClientResponse) -> None:
        self._http = http
        self._response = response
        self._parts: list[bytes] = []
        self._size = 0
        self.status = response.status
        self.headers = response.headers

    def close(self) -> None:
        """Hang up, unless the answer was read to its end: then the connection is free already."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()  # a plain close would first send what is left of the request
        self._response.close()

    async def read(self) -> bytes:
        """The next part of the body, nothing at its end; ReplyBroken once it is too large."""
        try:
            part = await self._response.content.readany()
        except _BROKEN as error:
            failure = self._http.failure(error, self.kept())
        else:
            self._size += len(part)
            if self._size <= self._http.largest:
                self._parts.append(part)
                return part
            what = f"it is larger than {self._http.largest:,} bytes"
            failure = self._http.broken(what, self.kept() + part[:RAW], self.status)
        raise failure

    def at_hand(self) -> bytes | None:
        """All of the body, if it is there already as a short one is: without the coroutines that `whole` takes."""
        content = self._response.content
        if not content.is_eof() or content.exception() is not None or content.total_bytes > self._http.largest:
            return None
        return content.read_nowait()

    async def whole(self) -> bytes:
        """All of the body."""
        while await self.read():
            pass
        parts = self._parts
        return parts[0] if len(parts) == 2 else b"".join(parts)  # noqa: PLR2004 - the only one, and the end

    def kept(self) -> bytes:
        """The first part of what was read."""
        kept = b""
        for part in self._parts:
            kept += part
            if len(kept) > 2 * RAW:
                break
        return kept

    async def drain(self) -> None:
        """Let a stream come to its end, so that its connection can be used again."""
        with suppress(TimeoutError, CallFailed):
            async with asyncio.timeout(_DRAIN):
                while await self.read():
                    pass


class Events:
    """Server-sent events out of the parts of a body, wherever it was cut."""

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, part: bytes) -> list[bytes]:
        """The data of the events that this part completes."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        done = []
        for line in lines:
            text = line.rstrip(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text[5:].removeprefix(b" "))
            elif not text and self._data:
                done.append(b"\n".join(self._data))
                self._data.clear()
        return done

    def end(self) -> list[bytes]:
        """What is left when the body ends: an event without its blank line was cut off, unless it is the end marker."""
        last = [*self._data, self._rest.strip().removeprefix(b"data:").strip()]
        return [DONE] if DONE in last else []


# --- what adapters have in common


@dataclass(slots=True)
class Draft:
    """A reply as it was read, in no provider's shape any more. Tokens are None where the provider did not tell them."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    refusal: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    model: str = ""
    id: str = ""


@dataclass(slots=True)
class Fold:
    """A stream while it is read. `ended` once its end marker came; `begun` once anything of a reply did."""

    draft: Draft = field(default_factory=Draft)
    pieces: list[str] = field(default_factory=list)
    begun: bool = False
    ended: bool = False
    told: bool = True
    """Whether its pieces are those of the reply's text; else the text is told at the end."""

    def take(self, event: Document) -> str:
        """Take an event in; the piece of text that it brought."""
        raise NotImplementedError

    def finished(self) -> Draft:
        """The reply, put together."""
        self.draft.text = "".join(self.pieces)
        return self.draft


class Provider:
    """A model behind HTTP. Those beneath it write requests and read replies in one provider's shape."""

    ends_by_marker = True
    """Whether nothing comes after the event that ends a stream."""

    def __init__(self, name: str, http: Http, url: str, stream_url: str | None = None) -> None:
        self.name = name
        self.model = name.partition("/")[2] or name
        self._http = http
        self._url = address(url)
        self._stream_url = address(stream_url or url)

    def __repr__(self) -> str:
        """What it is, and where."""
        return f"<{type(self).__name__} {self.name} at {self._url.host}>"

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:
        """Answer once: no retries, no limits. Any error is beneath CallFailed; those of `hear` pass as they are."""
        body = self._written(request, stream=hear is not None)
        if hear is not None:
            return await self._streamed(request, body, hear)
        start = _now()
        answer = await self._http.post(self._url, body)
        seconds = _now() - start
        return self._reply(request, self._read(answer, request), answer.body, seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    # --- for those beneath

    def write(self, request: Request, *, stream: bool) -> Document:
        """The body of a request."""
        raise NotImplementedError

    def read(self, document: Document, request: Request) -> Draft:
        """A whole reply. KeyError, TypeError and the like mean that it has not its shape."""
        raise NotImplementedError

    def fold(self, request: Request) -> Fold:
        """Something to take a stream's events."""
        raise NotImplementedError

    # --- the way of a call

    def _written(self, request: Request, *, stream: bool) -> bytes:
        try:
            if request.schema is not None:
                check_schema(request.schema)
            return _encode(self.write(request, stream=stream)).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefused(f"{self.name} can't be sent this request: {one_line(str(error))}") from None

    def _read(self, answer: Answer, request: Request) -> Draft:
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - success
            raise fault_of(self.name, answer.status, answer.headers, answer.body, clean=self._http.clean)
        kind = answer.headers.get("content-type", "json")
        if "json" not in kind:
            raise self._http.broken(f"it is {one_line(self._http.clean(kind))}, not JSON", answer.body, answer.status)
        document = self._document(answer.body, lambda: answer.body)
        try:
            return self.read(document, request)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise self._misshapen(answer.body) from None

    def _document(self, data: bytes, kept: Callable[[], bytes]) -> Document:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
            raise self._http.broken(f"no JSON ({why})", kept(), 200) from None
        if not isinstance(document, dict):
            raise self._misshapen(kept())
        if "error" in document and (fault := fault_in(self.name, document, clean=self._http.clean)) is not None:
            raise fault
        return document

    def _misshapen(self, body: bytes) -> ReplyBroken:
        return self._http.broken("it is empty, or has not the shape of a reply", body, 200)

    async def _streamed(self, request: Request, body: bytes, hear: Hear) -> Reply:
        start = _now()
        exchange = await self._http.open(self._stream_url, body)
        try:
            if exchange.status != 200 or "event-stream" not in exchange.headers.get("content-type", ""):  # noqa: PLR2004
                answer = Answer(exchange.status, exchange.headers, await exchange.whole())
                reply = self._reply(request, self._read(answer, request), answer.body, _now() - start)
                if reply.text:
                    hear(reply.text)
                return reply
            fold = self.fold(request)
            first = await self._listen(exchange, fold, hear, start)
            seconds = _now() - start
            self._whole(fold, exchange)
            reply = self._reply(request, fold.finished(), exchange.kept(), seconds, first)
            if first is None and reply.text:
                hear(reply.text)
            await exchange.drain()
            return reply
        finally:
            exchange.close()

    async def _listen(self, exchange: Exchange, fold: Fold, hear: Hear, start: float) -> float | None:
        """Read a stream to its end marker, or its end; the seconds until the first piece of text."""
        events = Events()
        first = None
        while True:
            part = await exchange.read()
            for data in events.feed(part) if part else events.end():
                piece = self._taken(fold, data, exchange)
                if piece and fold.told:
                    first = _now() - start if first is None else first
                    hear(piece)
                if fold.ended and self.ends_by_marker:
                    return first
            if not part:
                return first

    def _taken(self, fold: Fold, data: bytes, exchange: Exchange) -> str:
        if data == DONE:
            fold.ended = True
            return ""
        document = self._document(data, exchange.kept)
        try:
            piece = fold.take(document)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise self._misshapen(exchange.kept()) from None
        if piece:
            fold.pieces.append(piece)
        return piece

    def _whole(self, fold: Fold, exchange: Exchange) -> None:
        if not fold.begun and exchange.kept().strip():
            raise self._misshapen(exchange.kept())
        if not fold.ended:
            what = f"{self.name}: the stream broke off before its end"
            raise ConnectionLost(what, status=exchange.status, raw=self._http.raw(exchange.kept()))

    def _reply(self, request: Request, draft: Draft, body: bytes, seconds: float, first: float | None = None) -> Reply:
        clean = self._http.clean  # a reply is written down: should the key be in it, it is not
        text, calls, finish = clean(_sound(draft.text)), draft.tool_calls, draft.finish
        if calls:
            calls = tuple(ToolCall(clean(each.id), clean(each.name), clean(each.arguments)) for each in calls)
        usage = self._usage(request, draft)
        if draft.refusal:
            self._raise(Refused, f"refused to answer: {one_line(self._http.clean(draft.refusal))}", body, usage)
        if not text and not calls and not (request.stop and finish == "stop"):
            cut = ": max_tokens were used up before any text" if finish == "length" else ""
            self._raise(ReplyBroken, f"sent an empty reply{cut}", body, usage)
        value: Json = None
        if request.schema is not None and not (calls and not text):
            who = f"the reply of {self.name}{', cut off at max_tokens,' if finish == 'length' else ''}"
            try:
                value = parse(text, request.schema, who=who, clean=self._http.clean)
            except ReplyInvalid as error:
                vars(error)["usage"] = usage
                raise
        return Reply(text, value, calls, usage, finish, clean(draft.model), clean(draft.id), seconds, first)

    def _usage(self, request: Request, draft: Draft) -> Usage:
        asked, said = draft.input_tokens, draft.output_tokens
        if asked is None or said is None:
            asked, said = (
                tokens_in(request) if asked is None else asked,
                tokens_of(draft.text) if said is None else said,
            )
            return Usage(1, asked, said, None, estimate=True)
        return Usage(1, asked, said, None)

    def _raise(self, kind: type[CallFailed], what: str, body: bytes, usage: Usage) -> NoReturn:
        error = kind(f"{self.name} {what}", status=200, raw=self._http.raw(body))
        vars(error)["usage"] = usage  # it was paid for, whatever it is worth
        raise error


def _sound(text: str) -> str:
    """A text that can be stored: halves of surrogate pairs are joined, or replaced where one is alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def address(url: str) -> URL:
    """The address of an endpoint; ValueError for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or not url.isprintable():
        raise ValueError("a base_url is an address like https://api.example.com/v1, without a user or a password")
    return URL(url, encoded=True)


def count(told: object) -> int | None:
    """A number of tokens as a provider tells it; None if it doesn't."""
    return told if type(told) is int and told >= 0 else None


def tokens_of(text: str) -> int:
    """About how many tokens a text has: one for four characters.

    >>> tokens_of(""), tokens_of("words")
    (0, 2)
    """
    return (len(text) + 3) // 4


def tokens_in(request: Request) -> int:
    """About how many tokens a request has."""
    extras = "".join(map(str, request.tools)) if request.tools else ""
    return (
        tokens_of(request.system or "") + tokens_of(extras) + sum(tokens_of(each.content) for each in request.messages)
    )


def arguments_of(call: ToolCall) -> Document:
    """The arguments of a tool call as an object; ValueError if they are none."""
    arguments = json.loads(call.arguments or "{}")
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of the tool call {call.id} are no object")
    return arguments

"""The HTTP server of the gateway: who may ask, where a request goes, how its answer is sent."""

import asyncio
import json
import logging
import re
import secrets
import socket
from collections.abc import Collection, Mapping
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from abreast.core.frozen import record
from abreast.core.version import VERSION
from abreast.models.estimate import tokens_of
from abreast.serve.answers.call import ServedCall
from abreast.serve.answers.outlet import EVENTS, JSON, AnswerHead
from abreast.serve.dialects.anthropic import Messages
from abreast.serve.dialects.chat import Chat
from abreast.serve.dialects.dialect import (
    ApiDialect,
    Document,
    Unsupported,
    encode,
    lenient_request,
)
from abreast.serve.dialects.responses import ResponsesApi
from abreast.serve.faults import ApiFault
from abreast.serve.gateway import Gateway

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

MAX_BODY_BYTES: Final = 64 << 20
KEEP_ALIVE: Final = 10.0
"""Seconds after which a stream that waits gets a sign of life, and again after as many."""
_SHUTDOWN_SECONDS: Final = 1.0
_VERSION: Final = "/v1"
_CLIENT: Final = re.compile(r"[^\w.@+-]+")
_MAX_NAME: Final = 40  # characters of a client's name or a tag
DEFAULT_CLIENT: Final = "default"
_DIALECTS: Final[Mapping[str, ApiDialect]] = {
    one.path: one for one in (Chat(), ResponsesApi(), Messages())
}
_COUNT_TOKENS: Final = "/messages/count_tokens"
# Headers of a connection, of this server, or of browsers: they end here.
_NOT_PASSED: Final = frozenset(
    {
        *("host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "te"),
        *("trailer", "upgrade", "content-length", "content-encoding", "accept-encoding"),
        *("authorization", "x-api-key", "api-key", "cookie", "origin", "referer", "expect"),
        *("proxy-authorization", "content-type", "forwarded", "x-forwarded-for"),
    }
)
_NOT_PASSED_PREFIXES: Final = ("x-abreast-", "sec-")


def _is_own_fault(record: logging.LogRecord) -> bool:
    """Whether a logged error is one of this server, and not of a request that is no HTTP.

    Such a request is answered with 400. Its error quotes the line, which may have the token in it.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_LOG: Final = logging.getLogger(__name__)
_LOG.addFilter(_is_own_fault)


@record(frozen=True, slots=True)
class ServerOptions:
    """Who may ask, and how long requests may wait."""

    token: str
    """What clients send as their key; `TOKEN.NAME` names the client too."""
    hosts: Collection[str]
    """The host names, with port, by which requests may call this server."""
    max_wait: float | None = None
    """Seconds that a request may wait for its lane, unless it says otherwise."""
    keep_alive: float = KEEP_ALIVE


class GatewayServer:
    """Speaks HTTP for a gateway. The creator must close it."""

    def __init__(self, gateway: Gateway, options: ServerOptions) -> None:
        self._gateway = gateway
        self._options = options
        self._hosts = frozenset(host.lower() for host in options.hosts)
        self._http = web.Server(
            self._handle,
            request_factory=_make_request,
            handler_cancellation=True,
            access_log=None,
            logger=_LOG,
        )
        self._listening: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """Answer on a socket that listens."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._http, sock=listener, backlog=1024)

    async def close(self) -> None:
        """Take no more connections, and end those that are open."""
        if self._listening is not None:
            self._listening.close()
        self._http.pre_shutdown()  # or it would wait for clients that keep idle connections
        await self._http.shutdown(_SHUTDOWN_SECONDS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.removeprefix(_VERSION)
        dialect = _DIALECTS.get(path) or _dialect_of(path, request.headers)
        refused = self._refusal(request)
        if refused is not None:
            return _refuse(dialect, refused)
        if request.method == "GET" and (path == "/models" or path.startswith("/models/")):
            return self._models(dialect, path.removeprefix("/models").removeprefix("/"))
        is_known = path in _DIALECTS or path == _COUNT_TOKENS
        if request.method != "POST" or not is_known:
            what = f"abreast serve has no {request.method} {request.path}"
            return _refuse(dialect, ApiFault(404, "missing", what))
        try:
            call = await self._read(request, dialect)
        except Unsupported as error:
            return _refuse(dialect, ApiFault(400, "invalid", str(error), error.parameter))
        if path == _COUNT_TOKENS:
            return await self._count_tokens(call)
        return await self._answer(request, call)

    # --- who may ask

    def _refusal(self, request: web.BaseRequest) -> ApiFault | None:
        """Why a request may not be answered; None to answer it."""
        headers = request.headers
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return ApiFault(
                403, "key", "this server has another name; use the address that it printed"
            )
        origin = headers.get("origin")
        is_other_site = headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}
        if is_other_site or (origin is not None and origin.lower() != f"http://{host}"):
            return ApiFault(403, "key", "pages of other sites may not use this server")
        if not secrets.compare_digest(
            _key(headers).partition(".")[0].encode("utf-8", "replace"), self._options.token.encode()
        ):
            return ApiFault(
                401,
                "key",
                "this is not the key of `abreast serve`; it is set by the lines that "
                "`abreast env` prints",
            )
        return None

    # --- reading a request

    async def _read(self, request: web.BaseRequest, dialect: ApiDialect) -> ServedCall:
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            most = f"the body has more than {MAX_BODY_BYTES >> 20} MB"
            raise Unsupported("body", most) from None
        try:
            body = _decode(raw.decode())
        except (ValueError, RecursionError):
            raise Unsupported("body", "the body is not JSON in UTF-8") from None
        if not isinstance(body, dict):
            raise Unsupported("body", "the body must be a JSON object")
        if not isinstance(body.get("model"), str) or not body["model"]:
            raise Unsupported("model", "model must be the name of a model")
        headers = request.headers
        return ServedCall(
            dialect,
            body,
            raw,
            _client_of(headers),
            _name(headers.get("x-abreast-tag", "")) or None,
            self._passed_headers(headers),
            self._max_wait(headers.get("x-abreast-timeout")),
        )

    def _passed_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        token = self._options.token
        return {
            lower: value
            for name, value in headers.items()
            if (lower := name.lower()) not in _NOT_PASSED
            and not lower.startswith(_NOT_PASSED_PREFIXES)
            and token not in value
        }

    def _max_wait(self, given: str | None) -> float | None:
        if given is None:
            return self._options.max_wait
        try:
            seconds = float(given)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise Unsupported("x-abreast-timeout", "x-abreast-timeout must be a number of seconds")
        return seconds

    # --- answering

    async def _answer(self, request: web.BaseRequest, call: ServedCall) -> web.StreamResponse:
        outlet = call.outlet
        self._gateway.submit(call)
        try:
            response = await self._wait_for_head(request, call)
            if response is None and outlet.ended and outlet.head is not None:
                head = outlet.head
                return _response(outlet.take(), head.status, head.content_type, head.headers)
            response = response or await self._prepare(request, call)
            while True:
                if part := outlet.take():
                    await response.write(part)
                if outlet.ended and not (part := outlet.take()):
                    break
                await outlet.wait()
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self._gateway.leave(call)
            raise
        return response

    async def _wait_for_head(
        self, request: web.BaseRequest, call: ServedCall
    ) -> web.StreamResponse | None:
        """Wait for the beginning of an answer; a stream is kept open meanwhile.

        Returns the response if it had to begin before.
        """
        outlet, response = call.outlet, None
        while not outlet.ended and outlet.head is None:
            if not call.streams:
                await outlet.wait()
                continue
            try:
                async with asyncio.timeout(self._options.keep_alive):
                    await outlet.wait()
            except TimeoutError:
                if response is None:
                    outlet.early = True
                    response = await self._prepare(request, call)
                await response.write(call.dialect.ping)
        return response

    @staticmethod
    async def _prepare(request: web.BaseRequest, call: ServedCall) -> web.StreamResponse:
        head = call.outlet.head or AnswerHead(200, EVENTS, {})
        own = {"content-type": head.content_type, "cache-control": "no-cache"}
        response = web.StreamResponse(status=head.status, headers={**head.headers, **own})
        await response.prepare(request)
        return response

    # --- the rest

    def _models(self, dialect: ApiDialect, wanted: str) -> web.Response:
        rows = [
            {
                "id": name,
                "object": "model",
                "type": "model",
                "display_name": name,
                "created": 0,
                "created_at": "1970-01-01T00:00:00Z",
                "owned_by": "abreast",
            }
            for name in self._gateway.models
        ]
        if not wanted:
            ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]} if rows else {}
            return _json({"object": "list", "data": rows, "has_more": False, **ends})
        for row in rows:
            if row["id"] == wanted:
                return _json(row)
        return _refuse(dialect, ApiFault(404, "missing", f"there is no model {wanted!r} so far"))

    async def _count_tokens(self, call: ServedCall) -> web.Response:
        """The provider's own count if the model is its; else an estimate, which says so."""
        answer = await self._gateway.count_tokens(call)
        if answer is not None:
            kind = answer.headers.get("content-type", JSON)
            return _response(answer.body, answer.status, kind, {})
        asked = {name: value for name, value in call.body.items() if name != "model"}
        request = lenient_request(asked, None)
        count = tokens_of(request.messages[0].content)
        return _json({"input_tokens": count}, headers={"x-abreast-estimate": "true"})


def _finite(text: str) -> float:
    """A number of a body; ValueError if it is none that JSON has, such as NaN or 1e999."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


# Made once: `json.loads` makes a decoder for each text if it is given any of these.
_decode: Final = json.JSONDecoder(parse_constant=_finite, parse_float=_finite).decode


def _key(headers: Mapping[str, str]) -> str:
    """The key that a client sends, wherever its API has it."""
    given = headers.get("authorization", "")
    bearer = given[7:] if given[:7].lower() == "bearer " else ""
    return (bearer or headers.get("x-api-key") or headers.get("api-key") or "").strip()


def _client_of(headers: Mapping[str, str]) -> str:
    """The name of a client: by its header, its key, or its program's name."""
    named = headers.get("x-abreast-client", "") or _key(headers).partition(".")[2]
    program = headers.get("user-agent", "").partition("/")[0]
    return _name(named) or _name(program) or DEFAULT_CLIENT


@lru_cache(maxsize=256)
def _name(text: str) -> str:
    return _CLIENT.sub("-", text.strip())[:_MAX_NAME].strip("-")


def _dialect_of(path: str, headers: Mapping[str, str]) -> ApiDialect:
    """The dialect in which to tell what is wrong with a request to no known path."""
    is_anthropic = path.startswith("/messages") or "anthropic-version" in headers
    return _DIALECTS["/messages" if is_anthropic else "/chat/completions"]


def _refuse(dialect: ApiDialect, fault: ApiFault) -> web.Response:
    headers = {"x-should-retry": "false"} if fault.final else {}
    return _json(dialect.fault(fault), status=fault.status, headers=headers)


def _json(
    body: Document, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return _response(encode(body).encode("utf-8", "replace"), status, JSON, headers or {})


def _response(body: bytes, status: int, kind: str, headers: Mapping[str, str]) -> web.Response:
    own = {"content-type": kind, "server": f"abreast/{VERSION}"}
    return web.Response(body=body, status=status, headers={**headers, **own})


def _make_request(
    message: "RawRequestMessage",
    payload: "StreamReader",
    protocol: "RequestHandler",
    writer: "AbstractStreamWriter",
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """As aiohttp makes it, for bodies with images in them."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )

"""The HTTP server of a storm on a local socket, in front of a World."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NoReturn

from aiohttp import web

from abreast.core.clock import SYSTEM_CLOCK
from abreast.testing.storm.batches.routes import BatchRoutes, ConnectionReset
from abreast.testing.storm.dialects.anthropic import AnthropicDialect
from abreast.testing.storm.dialects.dialect import (
    BadRequest,
    Dialect,
    Refusal,
    StormRequest,
    count_tokens,
)
from abreast.testing.storm.dialects.gemini import GeminiDialect
from abreast.testing.storm.dialects.openai import OpenAIDialect
from abreast.testing.storm.dialects.replies import (
    JSON,
    SSE,
    Script,
    StormAnswer,
    error_answer,
    fixed_text,
    reply_answer,
    to_json,
)
from abreast.testing.storm.log import Stats
from abreast.testing.storm.settings import from_json
from abreast.testing.storm.strict.profiles import make_profile
from abreast.testing.storm.world import StormVerdict, World, WorldRequest

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

_MAX_REQUEST_BYTES = 256 * 1024 * 1024
_LINGER_ZERO = struct.pack("ii", 1, 0)  # for SO_LINGER: closing resets the connection
# Seconds for handlers to end when the storm does; they are cancelled before, so they end at once.
_SHUTDOWN_TIMEOUT = 1.0

_GENERATE_PATH = "/v1beta/models"  # of all that generate by the model in their path
_DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": OpenAIDialect(),
    "/v1/messages": AnthropicDialect(),
    _GENERATE_PATH: GeminiDialect(),
}
_GENERATE = re.compile(
    r"/v1(?:beta)?/models/(?P<model>[^:]+):(?P<stream>generateContent|streamGenerateContent)"
)

Watcher = tuple[Callable[[Stats], bool], "asyncio.Future[None]"]


class StormServer:
    """Answers on 127.0.0.1 as its world decides. The creator must close it."""

    def __init__(self, world: World, script: Script | None = None) -> None:
        self.world = world
        self.connections = 0
        self.port = 0
        self._script = script
        # A strict profile remembers what it has sent, so each storm has its own.
        self._profiles: dict[str, Mapping[str, Dialect]] = {"none": _DIALECTS}
        self.batches = BatchRoutes(world, script, self._dialects)
        self._closing = False
        self._watchers: list[Watcher] = []
        self._http = web.Server(
            self._handle, request_factory=_make_request, handler_cancellation=True, access_log=None
        )
        self._listening: asyncio.Server | None = None

    async def open(self, port: int = 0) -> None:
        """Listen; OSError if the port is taken."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._connect, "127.0.0.1", port, backlog=4096)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Abort all connections; what is in flight stays so in the log."""
        self._closing = True
        if self._listening is not None:
            self._listening.close()
        for connection in self._http.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._http.shutdown(_SHUTDOWN_TIMEOUT)
        if self._listening is not None:
            await self._listening.wait_closed()

    def stats(self) -> Stats:
        """The world's counts, and those of the socket."""
        used = os.times()
        return replace(
            self.world.stats(), connections=self.connections, cpu_seconds=used.user + used.system
        )

    async def until(self, holds: Callable[[Stats], bool]) -> None:
        """Wait until the counts satisfy `holds`, which is called after every event."""
        if holds(self.stats()):
            return
        watcher: Watcher = (holds, asyncio.get_running_loop().create_future())
        self._watchers.append(watcher)
        try:
            await watcher[1]
        finally:
            self._watchers.remove(watcher)

    # --- model requests

    def _connect(self) -> RequestHandler:
        self.connections += 1
        return self._http()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            settings = self.world.settings_at(SYSTEM_CLOCK.now())
            target = _route(request.path, self._dialects())
            if target is not None:
                body = await request.read()
                dialect, model, stream = target
                try:
                    ask = _parse_request(dialect, _parse_json(body), model, stream=stream)
                    text = fixed_text(
                        ask, settings.reply, self._script, agrees=settings.strict != "none"
                    )
                except Refusal as error:
                    return self._refuse(dialect, error)
                except BadRequest as error:
                    return _json(dialect.error(400, "bad", str(error), None), status=400)
                return await self._answer(request, dialect, ask, text)
        return await self._answer_batches(request) or await self._answer_other(request)

    def _dialects(self) -> Mapping[str, Dialect]:
        """The dialects of the current profile, by path."""
        strict = self.world.settings_at(SYSTEM_CLOCK.now()).strict
        if strict not in self._profiles:
            self._profiles[strict] = make_profile(strict)
        return self._profiles[strict]

    async def _answer_batches(self, request: web.BaseRequest) -> web.StreamResponse | None:
        try:
            answer = await self.batches.answer(request)
        except ConnectionReset:
            _reset(request)
            return web.Response()
        except Refusal as error:
            return _json(error.body, status=error.status)
        except BadRequest as error:
            return _json({"error": {"message": str(error)}}, status=400)
        finally:
            self._notify_watchers()
        return answer

    def _refuse(self, dialect: Dialect, refusal: Refusal) -> web.Response:
        model, parameter = refusal.model, refusal.parameter
        number = self.world.refuse(SYSTEM_CLOCK.now(), dialect.lane, model, parameter)
        self._notify_watchers()
        response = _json(refusal.body, status=refusal.status)
        response.headers["x-request-id"] = f"storm-{number}"
        return response

    async def _answer(
        self, request: web.BaseRequest, dialect: Dialect, ask: StormRequest, text: str | None
    ) -> web.StreamResponse:
        world, clock = self.world, SYSTEM_CLOCK
        output = None if text is None else count_tokens(text)
        arriving = WorldRequest(
            ask.key,
            ask.input_tokens,
            ask.max_tokens,
            output,
            dialect.lane,
            ask.model,
            ask.prompt,
            ask.reasoning_tokens,
            ask.cached_tokens,
            ask.cache_write_tokens,
            ask.files,
        )
        verdict = world.arrive(clock.now(), arriving)
        self._notify_watchers()
        if not verdict.admitted:
            return _full_response(error_answer(dialect, verdict), verdict)
        try:
            response = await self._serve(request, dialect, ask, verdict, text)
        except (asyncio.CancelledError, ConnectionError):
            if not self._closing:
                world.leave(clock.now(), verdict.id)
                self._notify_watchers()
            raise
        world.finish(clock.now(), verdict.id)
        self._notify_watchers()
        return response

    async def _serve(
        self,
        request: web.BaseRequest,
        dialect: Dialect,
        ask: StormRequest,
        verdict: StormVerdict,
        text: str | None,
    ) -> web.StreamResponse:
        fault = verdict.fault.name if verdict.fault is not None else ""
        if fault == "stall":
            await _wait_forever()
        if verdict.status >= 500:  # noqa: PLR2004 - server errors
            answer = error_answer(dialect, verdict)
        else:
            answer = reply_answer(dialect, ask, verdict, text, self.world.settings.chunks)
        streams = answer.kind == SSE
        wait = verdict.first if streams else verdict.latency
        if wait:
            await asyncio.sleep(wait)
        if fault == "reset":
            _reset(request)
            # Without awaiting: an await would be cancelled, as if the client had disconnected.
            return web.Response()
        self.world.first(SYSTEM_CLOCK.now(), verdict.id)
        if not streams and answer.ends == "well":
            return _full_response(answer, verdict)
        return await self._send(request, answer, verdict)

    async def _send(
        self, request: web.BaseRequest, answer: StormAnswer, verdict: StormVerdict
    ) -> web.StreamResponse:
        """Send the parts evenly over the time that the tokens take, and end as the answer says."""
        response = web.StreamResponse(status=answer.status, headers=_headers(answer, verdict))
        if answer.missing:
            response.content_length = sum(map(len, answer.parts)) + answer.missing
        await response.prepare(request)
        pause = (
            (verdict.latency - verdict.first) / max(1, len(answer.parts) - 1)
            if answer.kind == SSE
            else 0.0
        )
        for number, part in enumerate(answer.parts):
            if number and pause:
                await asyncio.sleep(pause)
            await response.write(part)
        if answer.ends == "never":
            await _wait_forever()
        if answer.ends == "lost":
            if request.transport is not None:
                request.transport.close()
            return response
        await response.write_eof()
        return response

    # --- log, counts and settings

    async def _answer_other(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/storm/log":
            since = request.query.get("since", "0")
            if not since.isdecimal():
                return _json(
                    {"error": {"message": f"since is a whole number, not {since!r}"}}, status=400
                )
            lines = (
                json.dumps(entry.as_dict()) + "\n"
                for entry in self.world.ledger.entries[int(since) :]
            )
            return web.Response(text="".join(lines), content_type="application/x-ndjson")
        if request.path == "/storm/stats":
            return _json(asdict(self.stats()))
        if request.path == "/storm/settings" and request.method == "POST":
            return self._change(await request.read())
        if request.path == "/v1/models":
            return _json(
                {
                    "object": "list",
                    "data": [{"id": "storm", "object": "model", "owned_by": "storm"}],
                }
            )
        return _json(
            {"error": {"message": f"There is nothing at {request.path}.", "type": "not_found"}},
            status=404,
        )

    def _change(self, body: bytes) -> web.Response:
        try:
            self.world.change(SYSTEM_CLOCK.now(), **from_json(_parse_json(body)))
        except (BadRequest, ValueError) as error:
            return _json({"error": {"message": str(error)}}, status=400)
        return _json({})

    def _notify_watchers(self) -> None:
        stats = self.stats() if self._watchers else None
        for holds, watcher in self._watchers:
            if stats is not None and not watcher.done() and holds(stats):
                watcher.set_result(None)


def _route(path: str, dialects: Mapping[str, Dialect]) -> tuple[Dialect, str, bool] | None:
    """The dialect of a path, with the model and whether it streams, if the path says so."""
    if path in dialects and path != _GENERATE_PATH:
        return dialects[path], "", False
    if _GENERATE_PATH in dialects and (found := _GENERATE.fullmatch(path)) is not None:
        streams = found["stream"] == "streamGenerateContent"
        return dialects[_GENERATE_PATH], found["model"], streams
    return None


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_MAX_REQUEST_BYTES
    )


def _parse_request(
    dialect: Dialect, body: dict[str, Any], model: str, *, stream: bool
) -> StormRequest:
    try:
        return dialect.ask(body, model, stream=stream)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"the body has something of the wrong type in it: {error}") from None


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadRequest("the body is an object of JSON")
    return parsed


def _headers(answer: StormAnswer, verdict: StormVerdict) -> dict[str, str]:
    headers = {
        "content-type": answer.kind,
        "x-request-id": f"storm-{verdict.id}",
        **(verdict.headers or {}),
    }
    if verdict.retry_after is not None:
        headers["retry-after"] = verdict.retry_after
    return headers


def _full_response(answer: StormAnswer, verdict: StormVerdict) -> web.Response:
    return web.Response(
        status=answer.status, body=b"".join(answer.parts), headers=_headers(answer, verdict)
    )


def _json(body: Mapping[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=to_json(dict(body)), content_type=JSON)


def _reset(request: web.BaseRequest) -> None:
    transport = request.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO
        )
        transport.abort()


async def _wait_forever() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError

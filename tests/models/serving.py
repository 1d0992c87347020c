"""A loopback server that gives predefined answers and records its requests."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from abreast.models.port import Message, Request

KEY = "sk-planted-0123456789-secret"


def ask(prompt: str = "Hello", **options: Any) -> Request:
    return Request((Message("user", prompt),), **options)


@dataclass
class Recorded:
    """An answer: a body of JSON, or a list of events for a stream."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    kind: str = "application/json"


def events(*documents: Any, named: bool = False, done: bool = False, end: str = "\n\n") -> Recorded:
    """A stream of server-sent events."""
    lines = []
    for document in documents:
        name = f"event: {document['type']}{end[: len(end) // 2]}" if named else ""
        lines.append(f"{name}data: {json.dumps(document)}{end}")
    if done:
        lines.append(f"data: [DONE]{end}")
    return Recorded(raw="".join(lines).encode(), kind="text/event-stream")


@dataclass
class Server:
    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def body(self) -> dict[str, Any]:
        return self.bodies[-1]


@asynccontextmanager
async def serving(*answers: Recorded):
    """A server that gives these answers in turn, and repeats the last one."""
    rest = list(answers)
    server = Server("")

    async def answer(request: web.BaseRequest) -> web.Response:
        server.bodies.append(json.loads(await request.read()))
        server.headers.append({key.lower(): value for key, value in request.headers.items()})
        server.paths.append(request.path_qs)
        given = rest.pop(0) if len(rest) > 1 else rest[0]
        raw = json.dumps(given.body).encode() if given.raw is None else given.raw
        return web.Response(
            status=given.status, body=raw, headers={"content-type": given.kind, **given.headers}
        )

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def closing(model):
    try:
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def speaking(said: bytes | None):
    """A server that sends these bytes after the head of a request, and closes the connection.

    With None, it only reads.
    """
    writers, over = [], []

    async def speak(reader, writer):
        writers.append(writer)
        over.append(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n") if said is not None else await reader.read()
            writer.write(said or b"")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*over)
        await server.wait_closed()

"""Broken bytes of HTTP: to the page, to the gateway, and as a provider's answers to the client."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import tempfile
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import abreast
from abreast.models.lanes import PROVIDERS, LaneSettings
from abreast.serve.gateway import Gateway
from abreast.serve.routes import Routes
from abreast.serve.server import GatewayServer, ServerOptions
from abreast.store.sqlite.store import SqliteStore
from abreast.web.app import Server, Site
from benchmarks.fuzz.mutator import change, change_bytes, change_document, write_json
from benchmarks.fuzz.replies import CORPUS, ask_at_random, body_of, open_raw_server
from benchmarks.fuzz.results import SLOW, Fuzzed

AT_ONCE: Final = 16  # connections
_QUIET: Final = 0.1  # seconds without an answer, after which the client ends the request
_TOKEN: Final = "token-of-the-fuzzer"
_KEY: Final = _TOKEN.encode()
_PAGES: Final = (
    *("", "runs.json", "runs.json?limit=3&state=done", "live", "static/app.js", "static/../app.py"),
    *("run/RUN", "run/RUN.json", "run/RUN/live", "run/RUN/lanes.json?from=0&to=9", "plotly.js"),
    *("run/RUN/items.json?limit=5&after=2&state=failed&text=a", "run/RUN/item.json?path=some/0003"),
    *("run/RUN/spending.json", "run/RUN/errors.json", "run/RUN/job.json", "run/RUN/review.json"),
    *("run/none.json", "run/RUN/lanes.json?width=100&map=some&since=3"),
)
_ACTIONS: Final = (
    {"action": "cancel", "fields": {"reason": "why"}},
    {"action": "resume", "fields": {"retry_failed": True}},
    {"action": "approve", "fields": {"gate": "a", "option": "yes"}},
    {"action": "undo", "fields": {}},
)
_SERVED: Final = {
    "chat/completions": {
        "model": "openai/m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "max_tokens": 9,
        "stream": False,
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
        "response_format": {"type": "json_object"},
        "stop": ["x"],
    },
    "responses": {
        "model": "responses/m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        "max_output_tokens": 9,
        "stream": True,
        "text": {"format": {"type": "text"}},
        "reasoning": {"effort": "low"},
    },
    "messages": {
        "model": "anthropic/m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "system": [{"type": "text", "text": "Be short."}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
    "messages/count_tokens": {"model": "gemini/m", "messages": [{"role": "user", "content": "x"}]},
}
_KINDS: Final = {
    "openai": "openai",
    "responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}


# --- a provider's answers


def draw_answer(dialect: str, draw: Random, stream: bool) -> bytes:  # noqa: FBT001 - as `Answers`
    """An HTTP answer that is whole, in chunks or compressed, with some bytes changed."""
    document = draw.choice(CORPUS[dialect]["whole"])
    body = body_of(dialect, draw, stream=True) if stream else json.dumps(document).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {'text/event-stream' if stream else _JSON}\r\n"
    kind = draw.randrange(4)
    if kind == 0:
        body = zlib.compress(body * draw.choice((1, 1, 1000)))
        head += f"Content-Encoding: deflate\r\nContent-Length: {len(body)}\r\n"
    elif kind == 1:
        head += "Transfer-Encoding: chunked\r\n"
        size = draw.randint(1, 200)
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    elif kind == 2:
        head += "Connection: close\r\n"
    else:
        head += f"Content-Length: {len(body) + draw.choice((0, 0, 0, 5, -3))}\r\n"
    start = f"{head}\r\n".encode()
    return (
        change_bytes(start, draw) + body
        if draw.random() < 0.5
        else change_bytes(start + body, draw)
    )


_JSON: Final = "application/json"


def fuzz_client(tries: int, seed: int) -> Fuzzed:
    """Give broken answers to the client of the adapters."""
    return asyncio.run(ask_at_random(tries, seed, draw_answer, closes=True))


# --- requests


class _Faults(logging.Handler):
    """Keeps the errors that servers log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record)[-900:])


@contextmanager
def _logged_faults() -> Iterator[list[str]]:
    handler = _Faults()
    loggers = [logging.getLogger(), logging.getLogger("uvicorn")]
    before = [(logger, logger.handlers[:]) for logger in loggers]
    for logger in loggers:
        logger.handlers[:] = [handler]
    try:
        yield handler.texts
    finally:
        for logger, handlers in before:
            logger.handlers[:] = handlers


async def send(port: int, request: bytes) -> bytes:
    """Send bytes, and return the first line of the answer; empty if the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        writer.write(request)
        with suppress(ConnectionError):
            await writer.drain()
            first = asyncio.ensure_future(reader.readline())
            done, _ = await asyncio.wait([first], timeout=_QUIET)
            if not done and writer.can_write_eof():
                with suppress(OSError):
                    writer.write_eof()
            return await first
        return b""
    finally:
        writer.close()


async def send_at_random(
    port: int, tries: int, seed: int, make: Callable[[Random], bytes], faults: list[str]
) -> Fuzzed:
    """Send requests, several at once; a 5xx, an error in the log or no answer counts."""
    found, draw = Fuzzed(), Random(seed)
    numbers = iter(range(tries))

    async def work() -> None:
        for _ in numbers:
            request = make(draw)
            try:
                async with asyncio.timeout(SLOW):
                    first = await send(port, request)
            except TimeoutError:
                found.hang(request)
                continue
            except OSError:
                first = b""
            if faults:
                found.break_off(faults.pop(), request)
                faults.clear()
            elif first.split(b" ")[1:2] in ([b"500"], [b"501"]):
                found.break_off(first.decode(errors="replace"), request)
            else:
                status = first.split(b" ")[1:2] or [b"closed"]
                found.end(status[0].decode(errors="replace")[:9])

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return found


def draw_visit(port: int, base: str, run: str) -> Callable[[Random], bytes]:
    """A maker of requests to the page, with a token, changed in their query, body or bytes."""

    def make(draw: Random) -> bytes:
        if draw.random() < 0.2:
            body = write_json(change_document(draw.choice(_ACTIONS), draw), draw)
            head = _head(port, "POST", f"{base}run/{run}/act?token={_TOKEN}")
            request = _with_body(head, body.encode("utf-8", "surrogatepass"))
        else:
            page = draw.choice(_PAGES).replace("RUN", run)
            path, mark, query = page.partition("?")
            if draw.random() < 0.5:
                query = change(query or "limit=3", draw)
            elif draw.random() < 0.5:
                path = change(path, draw)
            words = _as_line(f"{base}{path}?token={_TOKEN}&{query if mark else 'a=b'}")
            request = _head(port, "GET", words) + b"\r\n"
        return change_bytes(request, draw) if draw.random() < 0.4 else request

    return make


def draw_call(port: int) -> Callable[[Random], bytes]:
    """A maker of requests to the gateway, with a token, changed in their body or bytes."""

    def make(draw: Random) -> bytes:
        path = draw.choice(sorted(_SERVED))
        document = change_document(_SERVED[path], draw)
        if isinstance(document, dict) and draw.random() < 0.3:
            document["model"] = draw.choice(["openai/m", "responses/m", "anthropic/m", "gemini/m"])
        body = write_json(document, draw).encode("utf-8", "surrogatepass")
        head = (
            _head(port, "POST", f"/v1/{path}") + f"Authorization: Bearer {_TOKEN}.me\r\n".encode()
        )
        if draw.random() < 0.1:
            word = change(draw.choice(["0.2", "abc"]), draw)
            head += f"x-abreast-timeout: {_as_line(word)}\r\n".encode("utf-8", "replace")
        request = _with_body(head, body)
        return change_bytes(request, draw) if draw.random() < 0.3 else request

    return make


def _head(port: int, method: str, target: str) -> bytes:
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Origin: http://127.0.0.1:{port}",
        f"Content-Type: {_JSON}",
        "",
    ]
    return "\r\n".join(lines).encode("utf-8", "replace")


def _with_body(head: bytes, body: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _as_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "").replace(" ", "%20")


def fuzz_page(tries: int, seed: int) -> Fuzzed:
    """Send broken requests to the page of a store with two runs."""
    with (
        tempfile.TemporaryDirectory(prefix="abreast-fuzz-") as folder,
        closing(SqliteStore(Path(folder, "runs.db"))) as store,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        run = asyncio.run(_fill(store))
        port = listening.getsockname()[1]
        site = Site(store, _TOKEN, {f"127.0.0.1:{port}"}, "abreast")
        server = Server(site)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with _logged_faults() as faults:  # now: the server has set up logging
                make = draw_visit(port, site.base, run)
                return asyncio.run(send_at_random(port, tries, seed, make, faults))
        finally:
            server.should_exit = True
            thread.join(60)


async def _fill(store: SqliteStore) -> str:
    async def work(item: int) -> int:
        if item % 5 == 0:
            raise ValueError("no fives")
        return item

    async with abreast.open_run("some", store=store, seed=1) as run:
        async for _ in run.map(work, range(30), width=4):
            pass
    return "some-1"


def fuzz_gateway(tries: int, seed: int) -> Fuzzed:
    """Send broken requests to the gateway; the provider behind it is well."""

    async def fuzz() -> Fuzzed:
        with _logged_faults() as faults:
            async with _open_gateway() as port:
                return await send_at_random(port, tries, seed, draw_call(port), faults)

    return asyncio.run(fuzz())


@asynccontextmanager
async def _open_gateway() -> AsyncIterator[int]:
    async with open_raw_server() as provider:
        body = json.dumps(CORPUS["openai"]["whole"][0]).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {_JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
        provider.answer = head.encode() + body
        url = f"http://127.0.0.1:{provider.port}/v1"
        own = {name: LaneSettings(name, kind, url, width=8) for name, kind in _KINDS.items()}  # type: ignore[arg-type]
        routes = Routes({**PROVIDERS, **own})
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            async with abreast.open_run("serve", kind="serve") as run:
                gateway = Gateway(run, routes)
                server = GatewayServer(gateway, ServerOptions(_TOKEN, {f"127.0.0.1:{port}"}))
                await server.open(listener)
                serving = asyncio.ensure_future(gateway.serve())
                try:
                    yield port
                finally:
                    gateway.close()
                    await asyncio.wait([serving])
                    await server.close()
                    await routes.close()


def fuzz_http(tries: int, seed: int) -> Fuzzed:
    """All three: so many tries in all."""
    found = Fuzzed()
    third = -(-tries // 3)
    for part in (fuzz_client, fuzz_page, fuzz_gateway):
        one = part(min(third, tries - found.tries), seed)
        found.tries += one.tries
        found.broken += one.broken
        found.hung += one.hung
        found.ends += one.ends
        found.examples += one.examples
    return found

"""A gateway on a loopback socket, a provider behind it that a test controls, and a client."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

import abreast
from abreast.models.lanes import PROVIDERS, LaneSettings
from abreast.models.price import FlatPrice
from abreast.serve.gateway import Gateway
from abreast.serve.routes import Routes
from abreast.serve.server import GatewayServer, ServerOptions

TOKEN = "token-of-this-test"
KEY = "sk-planted-0123456789-secret"
HELLO = {"role": "user", "content": "Hello"}


def chat(text="Hello", **more):
    return {"model": "gpt-x", "messages": [{"role": "user", "content": text}], **more}


def message(text="Hello", **more):
    return {**chat(text), "model": "claude-x", "max_tokens": 64, **more}


def chat_reply(text="Hi", tokens=(3, 2)):
    """A chat completion with a field that abreast does not know."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-x",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]},
        "unknown_field": {"kept": True},
    }


def lanes(url, **options):
    """The lanes of a provider at this address, in each of the dialects."""
    more = {"width": 4, "price": FlatPrice(1000.0, 1000.0), **options}
    own = {
        "openai": LaneSettings("openai", "openai", f"{url}/v1", **more),
        "anthropic": LaneSettings("anthropic", "anthropic", f"{url}/v1", **more),
        "responses": LaneSettings("responses", "openai-responses", f"{url}/v1", **more),
        "gemini": LaneSettings("gemini", "gemini", f"{url}/v1beta", **more),
    }
    return {**PROVIDERS, **own}


@dataclass
class Answer:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    async def of(cls, response):
        headers = {name.lower(): value for name, value in response.headers.items()}
        return cls(response.status, headers, await response.read())

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """The data of the events, without the end marker."""
        lines = self.body.decode().splitlines()
        data = [line[6:] for line in lines if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]


@dataclass
class Client:
    """A client of a gateway."""

    url: str
    gateway: Gateway
    run: Any
    session: aiohttp.ClientSession

    async def post(self, path, body, *, key=TOKEN, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        own = {
            "content-type": "application/json",
            **({"authorization": f"Bearer {key}"} if key else {}),
        }
        async with self.session.post(self.url + path, data=data, headers=own | named) as response:
            return await Answer.of(response)

    async def get(self, path, *, key=TOKEN):
        own = {"x-api-key": key} if key else {}
        async with self.session.get(self.url + path, headers=own) as response:
            return await Answer.of(response)

    def open(self, path, body):
        """A request whose answer is read as it comes."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        return self.session.post(self.url + path, json=body, headers=headers)

    def chat(self, text="Hello", *, headers=None, **more):
        return self.post("/v1/chat/completions", chat(text, **more), **(headers or {}))


@asynccontextmanager
async def open_gateway(
    settings,
    *,
    store=None,
    budget=None,
    routes=None,
    ahead=None,
    server=None,
    resume=None,
    **options,
):
    """A gateway that answers until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = Routes(settings, store=store, **(routes or {}))
        resumed = {"resume": "failed", "run_id": resume} if resume else {"resume": "never"}
        run = abreast.open_run("serve", store=store, budget=budget, kind="serve", **resumed)
        async with run, aiohttp.ClientSession() as session:
            gateway = Gateway(run, found, ahead=ahead, **options)
            hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
            opened = GatewayServer(gateway, ServerOptions(TOKEN, hosts, **(server or {})))
            await opened.open(listener)
            serving = asyncio.create_task(gateway.serve())
            try:
                yield Client(f"http://127.0.0.1:{port}", gateway, run, session)
            except BaseException:
                serving.cancel()  # a failed test may have left calls that never end
                raise
            finally:
                gateway.close()
                await asyncio.wait([serving])
                await opened.close()
                await found.close()
                if not serving.cancelled() and serving.exception():
                    raise serving.exception()


@dataclass
class Upstream:
    """A provider that answers as a test says, and keeps what it was sent."""

    url: str = ""
    answer: Any = None
    requests: list[Any] = field(default_factory=list)
    gone: int = 0
    at_once: int = 0
    peak: int = 0

    @property
    def bodies(self):
        return [json.loads(body) for _, _, body in self.requests]


@asynccontextmanager
async def open_upstream(answer):
    """A provider at a loopback address; `answer(request, body)` gives a web.Response."""
    upstream = Upstream(answer=answer)

    async def handle(request):
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        upstream.requests.append((request.path, headers, body))
        upstream.at_once += 1
        upstream.peak = max(upstream.peak, upstream.at_once)
        try:
            return await upstream.answer(request, json.loads(body))
        except asyncio.CancelledError:
            upstream.gone += 1
            raise
        finally:
            upstream.at_once -= 1

    server = web.Server(handle, handler_cancellation=True, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    upstream.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        listening.close()
        await server.shutdown(1.0)


async def reply_hi(request, body):
    return web.json_response(chat_reply())

"""Replies of every provider through a proxy with a password and by a private CA: nothing leaks.

`pytest tests/models/test_behind_a_proxy.py` sends all shapes of `providers/test_shapes.py`, and
those of the Responses API, over TLS: whole replies, streams, errors and tool calls.
"""

import asyncio
import json
import socket
import ssl
import traceback
from base64 import b64encode
from contextlib import asynccontextmanager, suppress

import pytest
import trustme
from aiohttp import web

import abreast
from abreast.core.errors import RequestRefused, ServerFault
from abreast.models.lanes import read_lanes
from abreast.models.port import Message, Request
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.gemini import Gemini
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.responses import OpenAIResponses
from tests.models.providers import test_responses as responses
from tests.models.providers.test_shapes import SCHEMA, SHAPES, WEATHER, Shape
from tests.models.serving import Recorded, events

HOST = "api.example"
KEY = "sk-planted-7c1d55-behind-a-proxy"
TOKEN = "token-planted-90f2-of-the-gateway"
PASSWORD = "pass-planted-41ab-of-the-proxy"
BASIC = b64encode(f"me:{PASSWORD}".encode()).decode()
SECRETS = (KEY, TOKEN, PASSWORD, BASIC)
PATHS = {OpenAI: "/v1", OpenAIResponses: "/v1", Anthropic: "/v1", Gemini: "/v1beta"}
KINDS = {
    OpenAI: "openai",
    OpenAIResponses: "openai-responses",
    Anthropic: "anthropic",
    Gemini: "gemini",
}
WAYS = [
    *((adapter, route) for route in ("HTTPS_PROXY", "NO_PROXY") for adapter in PATHS),
    (Anthropic, "the lane's proxy"),
]

RESPONSES = [
    Shape(
        "responses: a reply after reasoning",
        OpenAIResponses,
        Recorded(responses.response(responses.thought(), responses.message("Hi"))),
        "Hi",
        tokens=(36, 87),
    ),
    Shape(
        "responses: a stream",
        OpenAIResponses,
        events(
            *responses.stream(
                responses.response(responses.message("Hi")), responses.text_delta("Hi")
            ),
            named=True,
        ),
        "Hi",
        tokens=(36, 87),
    ),
    Shape(
        "responses: a tool call",
        OpenAIResponses,
        Recorded(responses.response(responses.thought(), responses.call(1))),
        finish="tool_calls",
        call=("call_1", "get_weather", '{"city":"Oslo"}'),
    ),
    Shape(
        "responses: a server's fault",
        OpenAIResponses,
        Recorded({"error": {"message": "it fell over", "type": "server_error"}}, 500),
        error=ServerFault,
        says="it fell over",
    ),
]


def echo(adapter):
    """An error that tells the secrets back."""
    told = f"not with {KEY}, {TOKEN}, {PASSWORD}"
    error = {"message": told, "type": "invalid_request_error", "status": "INVALID_ARGUMENT"}
    answer = Recorded({"type": "error", "error": error, "seen": told}, 400, {"x-seen": told})
    return Shape("an echo", adapter, answer, error=RequestRefused, says="not with ***, ***, ")


# --- the servers


@asynccontextmanager
async def provider(authority, answers):
    """A server with TLS that gives the answer whose number is the model's, or is in the path."""
    seen = []

    async def answer(request):
        body = await request.read()
        model = json.loads(body).get("model") or request.path
        number = int(model.rpartition("shape-")[2].partition(":")[0])
        seen.append({name.lower(): value for name, value in request.headers.items()})
        given = answers[number]
        raw = json.dumps(given.body).encode() if given.raw is None else given.raw
        told = {"x-seen": f"{request.headers.get('authorization')} {TOKEN}"}
        headers = {"content-type": given.kind, **given.headers, **told}
        return web.Response(status=given.status, body=raw, headers=headers)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1], seen
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connect_proxy():
    """A proxy for CONNECT that asks for the password, and tells it back where it refuses."""
    asked, tasks, writers = [], [], []

    async def serve(reader, writer):
        tasks.append(asyncio.current_task())
        writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            asked.append(head.partition("\r\n")[0])
            given = head.partition("Proxy-Authorization: Basic ")[2].partition("\r\n")[0]
            if given != BASIC:
                writer.write(f"HTTP/1.1 407 not {given}\r\nx-was: {given}\r\n\r\n".encode())
            else:
                port = int(asked[-1].split()[1].rpartition(":")[2])
                inner, outer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(outer)
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await asyncio.gather(_pass_on(reader, outer), _pass_on(inner, writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks)


async def _pass_on(reader, writer):
    with suppress(ConnectionError):
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    writer.close()


# --- the world around a lane


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def world(monkeypatch, authority, tmp_path):
    """An environment without proxies, a name server that knows the host, and the CA's file."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    look_up = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more, **options: look_up(
            "127.0.0.1" if host == HOST else host, *more, **options
        ),
    )
    monkeypatch.setenv("PLANTED_KEY", KEY)
    monkeypatch.setenv("GATEWAY_TOKEN", TOKEN)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return monkeypatch


def go_by(route, world, port, password=PASSWORD):
    """Set the environment for a route; return what the lane says about it."""
    address = f"http://me:{password}@127.0.0.1:{port}"
    if route == "the lane's proxy":
        world.setenv("OWN_PROXY", address)
        return {"proxy": "env:OWN_PROXY"}
    world.setenv("HTTPS_PROXY", address)
    if route == "NO_PROXY":
        world.setenv("NO_PROXY", f"other.example,{HOST}")
    return {}


def lanes_of(adapter, port, folder, more):
    table = {
        "kind": KINDS[adapter],
        "base_url": f"https://{HOST}:{port}{PATHS[adapter]}",
        "api_key_env": "PLANTED_KEY",
        "headers": {"X-Gateway-Token": "env:GATEWAY_TOKEN"},
        "ca_file": "ca.pem",
        "outage": 0,
        **more,
    }
    return read_lanes({"mine": table}, "abreast.toml", folder)


def check(shape, reply, heard):
    assert (reply.text, reply.finish, reply.value) == (shape.text, shape.finish, shape.value)
    assert "".join(heard) == (shape.text if shape.answer.kind == "text/event-stream" else "")
    calls = [(one.id, one.name, one.arguments) for one in reply.tool_calls]
    assert calls == ([shape.call] if shape.call else [])


async def ask_all(shapes, lanes, folder, seen):
    """Ask for every shape in a recorded run; return all that a user could see of it."""
    outcomes, said = {}, []

    async def ask(number):
        shape, heard = shapes[number], []
        asked = Request(
            (Message("user", "Hello"),),
            schema=SCHEMA if shape.value else None,
            tools=(WEATHER,) if shape.call else (),
        )
        streams = shape.answer.kind == "text/event-stream"
        name = f"mine/shape-{number}"
        async with abreast.open_model(name, lanes=lanes, retry=0) as model:
            said.append(f"{model!r} {model.model!r}")
            reply = await model.complete(asked, heard.append if streams else None)
        check(shape, reply, heard)
        return reply.text

    store = str(folder / "runs.db")
    hooks = [lambda event: seen.append(repr(event))]
    async with abreast.open_run("shapes", store=store, hooks=hooks) as run:
        async for outcome in run.map(ask, range(len(shapes)), width=4):
            outcomes[outcome.index] = outcome
            said.append(repr(outcome))
        grep(folder)  # while its write-ahead log is there
    for outcome in outcomes.values():
        if not outcome.ok:
            said += [repr(vars(outcome.error)), *traceback.format_exception(outcome.error)]
    return outcomes, "\n".join(said)


def grep(folder):
    """No file has a secret in it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "runs.db" for path in files)
    for secret in SECRETS:
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


# --- the tests


@pytest.mark.parametrize("way", WAYS, ids=[f"{KINDS[way[0]]} by {way[1]}" for way in WAYS])
async def test_every_shape_is_read_and_no_secret_is_in_anything_written_or_said(
    way, world, authority, tmp_path, caplog
):
    caplog.set_level("DEBUG")
    adapter, route = way
    shapes = [shape for shape in (*SHAPES, *RESPONSES) if shape.adapter is adapter]
    shapes += [] if route == "NO_PROXY" else [echo(adapter)]  # it knows no password there
    events_seen = []
    async with (
        provider(authority, [shape.answer for shape in shapes]) as (port, heads),
        connect_proxy() as (proxy, asked),
    ):
        lanes = lanes_of(adapter, port, tmp_path, go_by(route, world, proxy))
        outcomes, said = await ask_all(shapes, lanes, tmp_path, events_seen)
    for number, shape in enumerate(shapes):
        outcome = outcomes[number]
        if shape.error is None:
            assert outcome.ok, (shape.name, outcome)
        else:
            assert type(outcome.error) is shape.error, (shape.name, outcome)
            assert shape.says in str(outcome.error)
    assert all(head["x-gateway-token"] == TOKEN for head in heads)
    assert all(KEY in " ".join(head.values()) for head in heads)
    assert set(asked) == (set() if route == "NO_PROXY" else {f"CONNECT {HOST}:{port} HTTP/1.1"})
    for secret in SECRETS:
        assert secret not in said + caplog.text + "".join(events_seen)
    grep(tmp_path)


@pytest.mark.parametrize("fault", ["password", "certificate"])
async def test_a_refusal_on_the_way_is_told_without_a_secret(
    fault, world, authority, tmp_path, caplog
):
    caplog.set_level("DEBUG")
    password = f"{PASSWORD}-wrong" if fault == "password" else PASSWORD
    server = authority if fault == "password" else trustme.CA()
    async with (
        provider(server, [Recorded({})]) as (port, heads),
        connect_proxy() as (proxy, asked),
    ):
        lanes = lanes_of(OpenAI, port, tmp_path, go_by("HTTPS_PROXY", world, proxy, password))
        outcomes, said = await ask_all(
            [Shape("refused", OpenAI, Recorded({}))], lanes, tmp_path, []
        )
    error = outcomes[0].error
    assert type(error) is RequestRefused
    wanted = "the proxy answers 407" if fault == "password" else "can't prove who it is"
    assert wanted in str(error)
    assert (heads, len(asked)) == ([], 1)
    wrong = b64encode(f"me:{PASSWORD}-wrong".encode()).decode()
    for secret in (*SECRETS, wrong):
        assert secret not in said + caplog.text

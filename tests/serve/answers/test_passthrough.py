"""Requests to a provider of the client's own API: passed on and back byte for byte."""

import asyncio
import json

import pytest
from aiohttp import web

from abreast.store.port import each_outcome
from abreast.testing import MemoryStore
from abreast.views.served import ServedSums
from tests.serve.gateways import (
    KEY,
    TOKEN,
    chat,
    chat_reply,
    lanes,
    message,
    open_gateway,
    open_upstream,
    reply_hi,
)
from tests.turns import until


@pytest.fixture
async def upstream(monkeypatch):
    monkeypatch.setenv("KEY_OF_THIS_TEST", KEY)
    async with open_upstream(reply_hi) as opened:
        yield opened


def keyed(upstream, **options):
    return lanes(upstream.url, api_key_env="KEY_OF_THIS_TEST", **options)


def streamed(*parts, kind="text/event-stream", status=200):
    """An answer that sends these parts one by one."""

    async def answer(request, body):
        response = web.StreamResponse(status=status, headers={"content-type": kind})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    return answer


async def test_fields_and_headers_that_abreast_does_not_know_arrive_and_the_key_is_its_own(
    upstream,
):
    odd = {"unknown": {"deep": [1, None]}, "logit_bias": {"50256": -100}, "n": 1}
    raw = json.dumps(chat(**odd), indent=3).encode()
    async with open_gateway(keyed(upstream)) as client:
        answer = await client.post(
            "/v1/chat/completions",
            raw,
            openai_beta="assistants=v9",
            x_abreast_tag="secret-tag",
            cookie="a=b",
        )
    path, headers, body = upstream.requests[0]
    assert (path, body) == ("/v1/chat/completions", raw)
    assert headers["openai-beta"] == "assistants=v9"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert not {"x-abreast-tag", "cookie"} & {name.lower() for name in headers}
    assert TOKEN not in str(headers)
    assert answer.json["unknown_field"] == {"kept": True}


async def test_anthropic_bodies_keep_cache_controls_and_beta_headers(upstream):
    async def reply(request, body):
        return web.json_response({"type": "message", "content": [], "usage": {"input_tokens": 7}})

    upstream.answer = reply
    block = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    async with open_gateway(keyed(upstream)) as client:
        answer = await client.post(
            "/v1/messages",
            message(system=[block], top_k=3),
            anthropic_beta="context-1m,other",
            anthropic_version="2099-01-01",
        )
    _, headers, body = upstream.requests[0]
    assert json.loads(body)["system"] == [block]
    assert (headers["anthropic-beta"], headers["anthropic-version"]) == (
        "context-1m,other",
        "2099-01-01",
    )
    assert (headers["x-api-key"], answer.status) == (KEY, 200)


async def test_a_named_provider_is_taken_off_the_model_and_the_rest_stays(upstream):
    async with open_gateway(keyed(upstream)) as client:
        await client.post("/v1/chat/completions", chat(odd=1) | {"model": "openai/gpt-x"})
    assert upstream.bodies == [chat(odd=1)]


async def test_a_stream_is_passed_on_byte_for_byte_and_its_usage_is_counted(upstream):
    parts = [
        b'data: {"choices":[{"index":0,"delta":{"content":"He"}}],"odd":1}\n\nda',
        b'ta:   {"choices":[{"index":0,"delta":{"content":"llo"},"finish_reason":"stop"}]}\r\n\r\n',
        (
            b': a comment\n\ndata: {"choices":[],"usage":{"prompt_tokens":5,'
            b'"completion_tokens":2}}\n\n'
        ),
        b"data: [DONE]\n\n",
    ]
    upstream.answer, store = streamed(*parts), MemoryStore()
    async with open_gateway(keyed(upstream), store=store) as client:
        answer = await client.chat(stream=True, stream_options={"include_usage": True})
    assert answer.body == b"".join(parts)
    assert answer.headers["content-type"] == "text/event-stream"
    [(_, used)] = ServedSums(each_outcome(store, "serve-1")).totals()["client"].values()
    assert (used.input_tokens, used.output_tokens, used.usd) == (5, 2, pytest.approx(0.007))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_429_is_waited_out_and_the_client_never_sees_it(upstream, stream):
    async def busy_once(request, body):
        if len(upstream.requests) == 1:
            headers = {"retry-after-ms": "1"}
            return web.json_response({"error": {"message": "slow"}}, status=429, headers=headers)
        return web.json_response(chat_reply())

    upstream.answer = busy_once
    async with open_gateway(keyed(upstream)) as client:
        answer = await client.chat(stream=stream)
    assert (answer.status, len(upstream.requests)) == (200, 2)


async def test_an_error_as_the_first_event_of_a_stream_is_tried_again(upstream):
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    good = b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'

    async def busy_once(request, body):
        return await streamed(error if len(upstream.requests) == 1 else good)(request, body)

    upstream.answer = busy_once
    async with open_gateway(keyed(upstream)) as client:
        answer = await client.post("/v1/messages", message(stream=True))
    assert (answer.body, len(upstream.requests)) == (good, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_of_the_provider_is_passed_on_as_it_is(upstream, stream):
    body = {"error": {"message": "no such thing", "type": "odd_error", "extra": 1}}

    async def refuse(request, _):
        return web.json_response(body, status=422)

    upstream.answer, store = refuse, MemoryStore()
    async with open_gateway(keyed(upstream), store=store) as client:
        answer = await client.chat(stream=stream)
    assert (answer.status, answer.json, len(upstream.requests)) == (422, body, 1)
    [outcome] = each_outcome(store, "serve-1")
    assert outcome.data["state"] == "failed"


@pytest.mark.parametrize("delta", [{"content": "He"}, {"role": "assistant"}])
async def test_a_stream_that_breaks_off_ends_with_an_error_in_the_dialect(upstream, delta):
    first = f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()

    async def break_off(request, body):
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(first)
        request.transport.abort()
        return response

    upstream.answer = break_off
    async with open_gateway(keyed(upstream)) as client:
        answer = await client.chat(stream=True)
    assert answer.body.startswith(first)
    assert answer.events[-1]["error"]["type"] == "server_error"
    assert len(upstream.requests) == 1  # the client has a part of it: it is not tried again


async def test_a_key_that_a_provider_sends_back_is_not_recorded(upstream):
    async def tell(request, body):
        return web.json_response(chat_reply(f"your key is {KEY}"))

    upstream.answer, store = tell, MemoryStore()
    async with open_gateway(keyed(upstream), store=store) as client:
        await client.chat(headers={"x_abreast_client": "me"})
    recorded = str([*store.events("serve-1", limit=1000)]) + str(store.get("serve-1"))
    assert "your key is" in recorded
    assert KEY not in recorded
    assert TOKEN not in recorded


async def test_a_client_that_goes_away_closes_the_call_at_the_provider(upstream):
    forever = asyncio.Event()

    async def wait(request, body):
        await forever.wait()

    upstream.answer, store = wait, MemoryStore()
    async with open_gateway(keyed(upstream, width=1), store=store) as client:
        asking = asyncio.create_task(client.chat())
        await until(lambda: upstream.at_once == 1)
        asking.cancel()
        await until(lambda: upstream.gone == 1)
        upstream.answer = reply_hi
        assert (await client.chat("again")).status == 200  # its place is free
    states = sorted(str(one.data["state"]) for one in each_outcome(store, "serve-1"))
    assert states == ["cancelled", "done"]


async def test_a_reply_that_cant_be_read_is_passed_on_and_its_usage_estimated(upstream):
    async def garble(request, body):
        return web.Response(body=b"\xff\xfe no json", content_type="application/json")

    upstream.answer, store = garble, MemoryStore()
    async with open_gateway(keyed(upstream), store=store) as client:
        answer = await client.chat()
    assert (answer.status, answer.body) == (200, b"\xff\xfe no json")
    [outcome] = each_outcome(store, "serve-1")
    assert (outcome.data["estimate"], outcome.data["requests"]) == (True, 1)

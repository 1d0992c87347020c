"""The storm's dialects of Anthropic and Gemini: replies, streams, tools and errors."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from abreast.testing import open_storm
from abreast.testing.storm.dialects.dialect import count_tokens

MESSAGES = "/v1/messages"
GENERATE = "/v1beta/models/m:generateContent"
STREAM = "/v1beta/models/m:streamGenerateContent?alt=sse"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def message(prompt="Hello there", **more):
    content = [{"type": "text", "text": prompt}]
    return {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": content}],
        **more,
    }


def content(prompt="Hello there", **more):
    return {"contents": [{"role": "user", "parts": [{"text": prompt}]}], **more}


@asynccontextmanager
async def weather(**settings):
    """A storm, and a function that posts to it and returns the status, the headers and the text."""
    async with open_storm(**settings) as storm, aiohttp.ClientSession(storm.url) as session:

        async def post(path, body):
            async with session.post(path, json=body) as reply:
                return reply.status, reply.headers, await reply.text()

        yield storm, post


def events_of(text):
    """The name and the data of each event; the name is empty if there is none."""
    events = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines())
        events.append((lines.get("event", ""), json.loads(lines["data"])))
    return events


# --- Anthropic


async def test_a_message_and_its_usage():
    async with weather() as (storm, post):
        status, _, text = await post(MESSAGES, message(system="Be brief."))
    reply = json.loads(text)
    (block,) = reply["content"]
    assert (status, reply["type"], reply["role"], reply["stop_reason"]) == (
        200,
        "message",
        "assistant",
        "end_turn",
    )
    assert reply["usage"] == {
        "input_tokens": count_tokens("Be brief.") + count_tokens("Hello there"),
        "output_tokens": count_tokens(block["text"]),
    }
    assert (storm.log[0].lane, storm.log[0].model) == ("anthropic", "m")


async def test_a_stream_of_a_message_has_its_events_in_order_and_says_the_same():
    async with weather(chunks=2) as (_, post):
        whole = json.loads((await post(MESSAGES, message()))[2])
        _, headers, text = await post(MESSAGES, message(stream=True))
    events = events_of(text)
    assert headers["content-type"] == "text/event-stream"
    assert [name for name, _ in events] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(name == data["type"] for name, data in events)
    deltas = [data["delta"]["text"] for name, data in events if name == "content_block_delta"]
    assert "".join(deltas) == whole["content"][0]["text"]
    assert events[0][1]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert events[-2][1]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert events[-2][1]["delta"]["stop_reason"] == "end_turn"


async def test_a_tool_is_called_with_the_arguments_that_the_prompt_gives():
    tools = [{"name": "find", "input_schema": SCHEMA}]
    asked = 'please call find with {"query": {"deep": [1]}} and tell'
    async with weather() as (_, post):
        scripted = json.loads((await post(MESSAGES, message(asked, tools=tools)))[2])
        half = json.loads((await post(MESSAGES, message("call find with {no", tools=tools)))[2])
    assert scripted["content"][0]["input"] == {"query": {"deep": [1]}}
    assert half["content"][0]["input"].keys() == SCHEMA["properties"].keys()


async def test_a_message_is_cut_uses_a_tool_follows_a_schema_or_is_refused():
    tools = [{"name": "find", "input_schema": SCHEMA}]
    async with weather() as (_, post):
        cut = json.loads((await post(MESSAGES, message(max_tokens=3)))[2])
        tool = json.loads((await post(MESSAGES, message("call find", tools=tools)))[2])
        forced = json.loads(
            (await post(MESSAGES, message(tools=tools, tool_choice={"type": "any"})))[2]
        )
        streamed = events_of(
            (await post(MESSAGES, message("call find", tools=tools, stream=True)))[2]
        )
        wanted = {"format": {"type": "json_schema", "schema": SCHEMA}}
        schema = json.loads((await post(MESSAGES, message(output_config=wanted)))[2])
        refused = json.loads((await post(MESSAGES, message("fault-refusal")))[2])
        refused_stream = events_of((await post(MESSAGES, message("fault-refusal", stream=True)))[2])
        empty = json.loads((await post(MESSAGES, message("fault-empty")))[2])
    assert (cut["stop_reason"], cut["usage"]["output_tokens"]) == ("max_tokens", 3)
    assert tool["stop_reason"] == forced["stop_reason"] == "tool_use"
    assert (tool["content"][0]["name"], tool["content"][0]["input"]) == ("find", {"n": 0})
    partial = [
        data["delta"]["partial_json"] for name, data in streamed if name == "content_block_delta"
    ]
    assert json.loads("".join(partial)) == {"n": 0}
    assert streamed[1][1]["content_block"]["input"] == {}
    assert json.loads(schema["content"][0]["text"]) == {"n": 0}
    assert (refused["stop_reason"], refused["content"], empty["content"]) == ("refusal", [], [])
    assert refused_stream[-2][1]["delta"]["stop_reason"] == "refusal"


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("401", 401, "authentication_error"),
        ("403", 403, "permission_error"),
        ("404", 404, "not_found_error"),
        ("context", 400, "invalid_request_error"),
        ("429", 429, "rate_limit_error"),
        ("500", 500, "api_error"),
        ("529", 529, "overloaded_error"),
    ],
)
async def test_errors_as_anthropic_names_them(name, status, kind):
    async with weather() as (_, post):
        got, headers, text = await post(MESSAGES, message(model=f"fault-{name}"))
    body = json.loads(text)
    assert (got, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert ("retry-after" in headers) is (name == "429")


async def test_a_message_needs_a_bound_and_its_limits_are_told_in_its_own_headers():
    async with weather(rpm=1, input_tpm=1000) as (_, post):
        unbounded = message()
        del unbounded["max_tokens"]
        assert (await post(MESSAGES, unbounded))[0] == 400
        _, headers, _ = await post(MESSAGES, message())
        assert headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert headers["anthropic-ratelimit-input-tokens-limit"] == "1000"
        status, headers, _ = await post(MESSAGES, message())
        assert (status, "retry-after" in headers) == (429, True)


# --- Gemini


async def test_a_candidate_and_its_usage():
    async with weather() as (storm, post):
        status, _, text = await post(
            GENERATE, content(systemInstruction={"parts": [{"text": "Be brief."}]})
        )
    reply = json.loads(text)
    (candidate,) = reply["candidates"]
    said = candidate["content"]["parts"][0]["text"]
    assert (status, candidate["finishReason"], reply["modelVersion"]) == (200, "STOP", "m")
    usage = reply["usageMetadata"]
    assert usage["promptTokenCount"] == count_tokens("Be brief.") + count_tokens("Hello there")
    assert usage["candidatesTokenCount"] == count_tokens(said)
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]
    assert (storm.log[0].lane, storm.log[0].model) == ("gemini", "m")


async def test_a_stream_of_candidates_says_the_same_and_its_last_one_why_it_ended():
    async with weather(chunks=3) as (_, post):
        whole = json.loads((await post(GENERATE, content()))[2])
        _, headers, text = await post(STREAM, content())
    events = [data for _, data in events_of(text)]
    assert headers["content-type"] == "text/event-stream"
    assert len(events) == 3
    parts = [event["candidates"][0]["content"]["parts"][0]["text"] for event in events]
    assert "".join(parts) == whole["candidates"][0]["content"]["parts"][0]["text"]
    assert ["finishReason" in event["candidates"][0] for event in events] == [False, False, True]
    assert events[-1]["usageMetadata"] == whole["usageMetadata"]


async def test_a_candidate_is_cut_calls_a_function_follows_a_schema_or_is_refused():
    tools = [{"functionDeclarations": [{"name": "find", "parameters": SCHEMA}]}]
    config = {
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {}},
    }
    async with weather() as (_, post):
        cut = json.loads(
            (await post(GENERATE, content(generationConfig={"maxOutputTokens": 3})))[2]
        )
        tool = json.loads((await post(GENERATE, content("call find", tools=tools)))[2])
        ((_, streamed),) = events_of((await post(STREAM, content("call find", tools=tools)))[2])
        schema = json.loads((await post(GENERATE, content(generationConfig=config)))[2])
        refused = json.loads((await post(GENERATE, content("fault-refusal")))[2])
        empty = json.loads((await post(GENERATE, content("fault-empty")))[2])
    assert (cut["candidates"][0]["finishReason"], cut["usageMetadata"]["candidatesTokenCount"]) == (
        "MAX_TOKENS",
        3,
    )
    call = {"functionCall": {"name": "find", "args": {"n": 0}}}
    assert (
        tool["candidates"][0]["content"]["parts"]
        == streamed["candidates"][0]["content"]["parts"]
        == [call]
    )
    assert schema["candidates"][0]["content"]["parts"] == [{"text": "{}"}]
    assert refused["candidates"] == [{"index": 0, "finishReason": "SAFETY"}]
    assert empty["candidates"] == []


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("401", 401, "UNAUTHENTICATED"),
        ("403", 403, "PERMISSION_DENIED"),
        ("404", 404, "NOT_FOUND"),
        ("context", 400, "INVALID_ARGUMENT"),
        ("429", 429, "RESOURCE_EXHAUSTED"),
        ("500", 500, "INTERNAL"),
        ("503", 503, "UNAVAILABLE"),
    ],
)
async def test_errors_as_gemini_names_them(name, status, said):
    async with weather() as (_, post):
        got, _, text = await post(f"/v1beta/models/fault-{name}:generateContent", content())
    error = json.loads(text)["error"]
    assert (got, error["code"], error["status"]) == (status, status, said)


async def test_which_quota_it_was_and_how_long_to_wait_are_in_the_details():
    async with weather() as (_, post):
        minute = json.loads((await post(GENERATE, content("fault-429")))[2])["error"]["details"]
        day = json.loads((await post(GENERATE, content("fault-quota")))[2])["error"]["details"]
    assert "PerMinute" in minute[0]["violations"][0]["quotaId"]
    assert minute[1]["retryDelay"] == "1s"
    assert "PerDay" in day[0]["violations"][0]["quotaId"]


@pytest.mark.parametrize(("path", "body"), [(MESSAGES, message()), (GENERATE, content())])
@pytest.mark.parametrize("broken", ["messages", "contents"])
async def test_a_body_without_its_list_is_a_bad_request(path, body, broken):
    async with weather() as (_, post):
        status, _, _ = await post(path, {**body, broken: "text"})
    assert status == (400 if broken in body else 200)

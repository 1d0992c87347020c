"""The storm over real HTTP: replies, streams, faults, limits, and clients that disconnect."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from io import BytesIO

import aiohttp
import pytest

from abreast.testing import open_storm
from abreast.testing.storm import FAULTS
from abreast.testing.storm.dialects.dialect import count_tokens

CHAT = "/v1/chat/completions"
LONG = 1000.0  # seconds: longer than any test waits


class Client:
    """Sends requests to a storm, and reads the answers."""

    def __init__(self, session):
        self.session = session

    async def post(self, path, body):
        async with self.session.post(path, json=body) as reply:
            return reply.status, reply.headers, await reply.text()

    async def get(self, path):
        async with self.session.get(path) as reply:
            return reply.status, reply.headers, await reply.text()

    async def chat(self, prompt="Hello there", **more):
        """The status, the headers, and the body as JSON."""
        status, headers, text = await self.post(CHAT, chat(prompt, **more))
        return status, headers, json.loads(text)


def chat(prompt="Hello there", **more):
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], **more}


@asynccontextmanager
async def weather(**settings):
    """A storm, and a client of it."""
    async with open_storm(**settings) as storm, aiohttp.ClientSession(storm.url) as session:
        yield storm, Client(session)


def chunks_of(text):
    """The data of each event of a stream."""
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def said(chunks):
    """The text that the chunks of a completion contain."""
    parsed = [json.loads(chunk) for chunk in chunks if chunk != "[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in parsed if c["choices"])


# --- replies


async def test_a_reply_is_a_function_of_the_request_and_its_usage_is_exact():
    async with weather(output_min=20, output_max=20) as (_, client):
        status, headers, first = await client.chat("Hello there")
        _, _, again = await client.chat("Hello there")
        _, _, other = await client.chat("Hello you")

    text = first["choices"][0]["message"]["content"]
    assert (status, headers["content-type"]) == (200, "application/json")
    assert (
        text
        == again["choices"][0]["message"]["content"]
        != other["choices"][0]["message"]["content"]
    )
    assert first["usage"]["prompt_tokens"] == count_tokens("Hello there") == 3
    assert first["usage"]["completion_tokens"] == count_tokens(text)
    assert first["usage"]["total_tokens"] == 3 + count_tokens(text)
    assert first["choices"][0]["finish_reason"] == "stop"


async def test_max_tokens_cuts_a_reply_short():
    async with weather(output_min=20, output_max=20) as (storm, client):
        _, _, reply = await client.chat(max_tokens=5)
        _, _, echo = await client.chat("fits", max_completion_tokens=20)
    assert reply["choices"][0]["finish_reason"] == "length"
    assert (
        reply["usage"]["completion_tokens"]
        == count_tokens(reply["choices"][0]["message"]["content"])
        == 5
    )
    assert echo["choices"][0]["finish_reason"] == "stop"
    assert [entry.output_tokens for entry in storm.log] == [5, 20]


async def test_a_stream_says_the_same_as_the_whole_reply():
    async with weather(chunks=3) as (_, client):
        _, _, whole = await client.chat()
        _, headers, text = await client.post(
            CHAT, chat(stream=True, stream_options={"include_usage": True})
        )
        _, _, without = await client.post(CHAT, chat(stream=True))

    chunks = chunks_of(text)
    assert headers["content-type"] == "text/event-stream"
    assert chunks[-1] == "[DONE]"
    assert said(chunks) == whole["choices"][0]["message"]["content"]
    assert len([c for c in chunks if '"content":"' in c]) == 1 + 3  # the role, and three pieces
    assert json.loads(chunks[-2])["usage"] == whole["usage"]
    assert json.loads(chunks[-3])["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in without


async def test_a_reply_can_be_scripted_or_echoed():
    async with weather(script={"2 + 2": "4"}) as (_, client):
        assert (await client.chat("2 + 2"))[2]["choices"][0]["message"]["content"] == "4"
        assert (await client.chat("2 + 3"))[2]["choices"][0]["message"]["content"] != "4"
    async with weather(script=str.upper, reply="echo") as (_, client):
        _, _, reply = await client.chat("shout this")
        assert reply["choices"][0]["message"]["content"] == "SHOUT THIS"
        assert reply["usage"]["completion_tokens"] == 3
    async with weather(reply="echo") as (_, client):
        _, _, reply = await client.chat("say this again", max_tokens=2)
        assert reply["choices"][0]["message"]["content"] == "say this"
        assert reply["usage"]["completion_tokens"] == 2


async def test_a_schema_is_followed():
    schema = {
        "type": "object",
        "properties": {
            "label": {"enum": ["spam", "ham"]},
            "score": {"type": "number", "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "sure": {"type": "boolean"},
            "by": {"$ref": "#/$defs/person"},
            "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "kind": {"const": "k"},
        },
        "$defs": {
            "person": {"type": "object", "properties": {"name": {"type": "string", "minLength": 6}}}
        },
    }
    async with weather() as (_, client):
        _, _, reply = await client.chat(
            response_format={"type": "json_schema", "json_schema": {"schema": schema}}
        )
        _, _, bare = await client.chat(response_format={"type": "json_object"})
    assert json.loads(reply["choices"][0]["message"]["content"]) == {
        "label": "spam",
        "score": 1,
        "tags": ["word", "word"],
        "sure": True,
        "by": {"name": "wordss"},
        "note": None,
        "kind": "k",
    }
    assert json.loads(bare["choices"][0]["message"]["content"]) == {}


TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    },
]


@pytest.mark.parametrize(
    ("prompt", "choice", "name"),
    [
        ("please call find", None, "find"),
        ("please", "required", "look"),
        ("please", {"type": "function", "function": {"name": "find"}}, "find"),
        ("please", "auto", None),
    ],
)
async def test_a_tool_is_called_if_the_prompt_asks_for_it_or_it_must_be(prompt, choice, name):
    async with weather() as (_, client):
        _, _, reply = await client.chat(prompt, tools=TOOLS, tool_choice=choice)
        _, _, text = await client.post(
            CHAT, chat(prompt, tools=TOOLS, tool_choice=choice, stream=True)
        )
    (choice_,) = reply["choices"]
    streamed = [json.loads(chunk)["choices"][0]["delta"] for chunk in chunks_of(text)[:-1]]
    calls = [delta["tool_calls"][0]["function"] for delta in streamed if "tool_calls" in delta]
    if name is None:
        assert (choice_["finish_reason"], calls) == ("stop", [])
        return
    (call,) = choice_["message"]["tool_calls"]
    assert (choice_["finish_reason"], call["function"]["name"]) == ("tool_calls", name)
    assert json.loads(call["function"]["arguments"]) == ({"n": 0} if name == "find" else {})
    assert calls[0]["name"] == name
    assert "".join(each["arguments"] for each in calls) == call["function"]["arguments"]


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        '{"messages": []}',
        '{"messages": [{"role": "user"}], "max_tokens": 0}',
        '{"messages": [{"role": "user"}], "stream_options": 3}',
        json.dumps(
            chat(
                response_format={
                    "type": "json_schema",
                    "json_schema": {"schema": {"$ref": "#/nowhere"}},
                }
            )
        ),
    ],
)
async def test_what_is_no_request_is_told_so_and_is_not_in_the_log(body):
    async with weather() as (storm, client):
        async with client.session.post(CHAT, data=body) as reply:
            assert reply.status == 400
            assert (await reply.json())["error"]["type"] == "invalid_request_error"
        assert storm.log == []


async def test_what_is_nowhere_is_not_found_and_models_are_listed():
    async with weather() as (_, client):
        assert (await client.get("/nowhere"))[0] == 404
        assert (await client.get(CHAT))[0] == 404
        assert (await client.post("/v1/other", {}))[0] == 404
        assert json.loads((await client.get("/v1/models"))[2])["data"][0]["id"] == "storm"


# --- limits


async def test_a_limit_rejects_with_a_429_that_says_when_to_come_back():
    async with weather(rpm=6, burst=2, retry_after="right") as (storm, client):
        statuses = [(await client.chat(str(n)))[0] for n in range(2)]
        status, headers, error = await client.chat("third")
    assert [*statuses, status] == [200, 200, 429]
    assert 1 <= int(headers["retry-after"]) <= 10
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert error["error"]["code"] == "rate_limit_exceeded"
    assert [entry.outcome for entry in storm.log] == ["ok", "ok", "rejected"]
    assert (storm.log[2].kind, storm.stats().rejected) == ("rpm", 1)


async def test_the_day_is_told_from_the_minute():
    async with weather(per_day=1) as (_, client):
        await client.chat()
        status, _, error = await client.chat()
    assert (status, error["error"]["code"]) == (429, "insufficient_quota")


async def test_no_more_are_served_at_once_than_the_cap_and_all_of_it_is_used():
    async with weather(concurrency=3, latency=LONG) as (storm, client):
        calls = [asyncio.create_task(client.chat(str(n))) for n in range(3)]
        await storm.until(lambda stats: stats.in_flight == 3)
        status, _, error = await client.chat("one more")
        assert (status, storm.log[-1].kind, storm.log[-1].in_flight) == (429, "concurrency", 3)
        assert "concurrent" in error["error"]["message"]
        calls[0].cancel()
        await storm.until(lambda stats: stats.disconnects == 1)
        calls[0] = asyncio.create_task(client.chat("in its place"))
        await storm.until(lambda stats: stats.in_flight == 3)
        assert storm.stats().peak_in_flight == 3
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


async def test_limits_can_be_changed_while_it_runs():
    async with weather() as (storm, client):
        assert (await client.chat())[0] == 200
        storm.change(rpm=1)
        assert storm.settings.rpm == 1
        assert [(await client.chat())[0] for _ in range(2)] == [200, 429]
        status, _, _ = await client.post("/storm/settings", {"rpm": None})
        assert (status, (await client.chat())[0]) == (200, 200)
        status, _, text = await client.post("/storm/settings", {"rpm": -1})
        assert (status, json.loads(text)["error"]["message"]) == (
            400,
            "rpm is a positive number, not -1",
        )
        number = len(storm.log) + 1
        assert (await client.post("/storm/settings", {"fault_at": {str(number): "503"}}))[0] == 200
        assert (await client.chat())[0] == 503
        assert (await client.post("/storm/settings", {"fault_at": {"one": "503"}}))[0] == 400
        assert (await client.post("/storm/settings", {"faults": 3}))[0] == 400


# --- clients that disconnect


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_while_it_waits_is_noticed(stream):
    async with weather(latency=LONG) as (storm, client):
        calls = [asyncio.create_task(client.chat(str(n), stream=stream)) for n in range(5)]
        await storm.until(lambda stats: stats.in_flight == 5)
        assert storm.stats().disconnects == 0
        for call in calls:
            call.cancel()
        await storm.until(lambda stats: stats.disconnects == 5)
        assert storm.stats().in_flight == 0
        assert [entry.outcome for entry in storm.log] == ["disconnected"] * 5
        assert all(entry.service is not None and entry.t_first is None for entry in storm.log)


async def test_a_client_that_goes_away_in_the_middle_of_a_stream_is_noticed():
    async with weather(per_token=LONG) as (storm, client):
        async with client.session.post(CHAT, json=chat(stream=True)) as reply:
            assert (await reply.content.readline()).startswith(b"data: ")
            assert storm.stats().in_flight == 1
        await storm.until(lambda stats: stats.disconnects == 1)
        (entry,) = storm.log
        assert entry.outcome == "disconnected"
        assert entry.t_arrive <= entry.t_first <= entry.t_end


@pytest.mark.parametrize("name", ["stall", "stall-body"])
@pytest.mark.parametrize("stream", [False, True])
async def test_who_is_stalled_waits_until_it_goes_away(name, stream):
    async with weather() as (storm, client):
        call = asyncio.create_task(client.chat(f"fault-{name}", stream=stream))
        await storm.until(lambda stats: stats.in_flight == 1)
        call.cancel()
        await storm.until(lambda stats: stats.disconnects == 1)
        assert (storm.log[0].fault, storm.log[0].outcome) == (name, "disconnected")


async def test_who_was_answered_did_not_go_away():
    async with weather() as (storm, client):
        for number in range(3):
            await client.chat(str(number))
    assert storm.stats().disconnects == 0
    assert storm.stats().ok == 3


async def test_a_storm_that_ends_hangs_up_and_blames_nobody():
    async with open_storm(latency=LONG) as storm:
        session = aiohttp.ClientSession(storm.url)
        call = asyncio.create_task(session.post(CHAT, json=chat()))
        await storm.until(lambda stats: stats.in_flight == 1)
    with pytest.raises(aiohttp.ClientError):
        await call
    await session.close()
    assert (storm.stats().disconnects, storm.stats().in_flight) == (0, 1)


# --- faults


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("500", 500, None),
        ("503", 503, None),
        ("529", 529, None),
        ("401", 401, "invalid_api_key"),
        ("403", 403, "permission_denied"),
        ("404", 404, "model_not_found"),
        ("context", 400, "context_length_exceeded"),
        ("429", 429, "rate_limit_exceeded"),
        ("429-bare", 429, "rate_limit_exceeded"),
        ("429-date", 429, "rate_limit_exceeded"),
        ("429-concurrency", 429, "rate_limit_exceeded"),
        ("quota", 429, "insufficient_quota"),
    ],
)
async def test_a_fault_that_is_an_error_has_its_status_and_its_code(name, status, code):
    async with weather() as (storm, client):
        got, headers, body = await client.chat(model=f"fault-{name}")
    assert (got, body["error"]["code"]) == (status, code)
    assert ("retry-after" in headers) is (name in ("429", "429-date"))
    assert storm.log[0].fault == name
    assert storm.log[0].outcome == ("rejected" if status == 429 else "fault")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_connection_is_reset_before_any_byte(stream):
    async with weather() as (storm, client):
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.chat("fault-reset", stream=stream)
        assert (storm.log[0].outcome, storm.log[0].t_first) == ("fault", None)
        assert (storm.stats().faults, storm.stats().disconnects, storm.stats().in_flight) == (
            1,
            0,
            0,
        )


@pytest.mark.parametrize("stream", [False, True])
async def test_the_connection_is_lost_in_the_middle_of_the_body(stream):
    async with weather() as (storm, client):
        async with client.session.post(CHAT, json=chat("fault-reset-body", stream=stream)) as reply:
            assert reply.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await reply.read()
        assert (storm.stats().faults, storm.stats().disconnects, storm.stats().in_flight) == (
            1,
            0,
            0,
        )


async def test_a_stream_ends_too_early():
    async with weather() as (storm, client):
        _, _, text = await client.post(CHAT, chat("fault-truncated", stream=True))
        _, _, half = await client.post(CHAT, chat("fault-truncated"))
    assert said(chunks_of(text))
    assert "[DONE]" not in text
    assert "finish_reason" in text
    assert '"finish_reason":"stop"' not in text
    assert half.startswith('{"id"')
    with pytest.raises(json.JSONDecodeError):
        json.loads(half)
    assert storm.stats().faults == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_body_is_no_json(stream):
    async with weather() as (_, client):
        status, _, text = await client.post(CHAT, chat("fault-malformed", stream=stream))
    assert status == 200
    with pytest.raises(json.JSONDecodeError):
        json.loads(chunks_of(text)[-1] if stream else text)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_has_no_choices(stream):
    async with weather() as (_, client):
        _, _, text = await client.post(CHAT, chat("fault-empty", stream=stream))
    assert json.loads(chunks_of(text)[0] if stream else text)["choices"] == []


@pytest.mark.parametrize(("name", "status"), [("html", 200), ("502", 502)])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_page_of_html_comes_instead(name, status, stream):
    async with weather() as (_, client):
        got, headers, text = await client.post(CHAT, chat(f"fault-{name}", stream=stream))
    assert (got, headers["content-type"]) == (status, "text/html")
    assert text.startswith("<!doctype html>")


async def test_a_reply_is_huge():
    async with weather() as (_, client):
        _, _, reply = await client.chat("fault-huge")
    assert len(reply["choices"][0]["message"]["content"]) >= 10_000_000


async def test_a_model_refuses():
    async with weather() as (_, client):
        _, _, reply = await client.chat("fault-refusal")
        _, _, text = await client.post(CHAT, chat("fault-refusal", stream=True))
    message = reply["choices"][0]["message"]
    assert (message["content"], reply["choices"][0]["finish_reason"]) == (None, "content_filter")
    assert count_tokens(message["refusal"]) == reply["usage"]["completion_tokens"]
    assert said(chunks_of(text)) == ""
    assert '"refusal":"' in text


async def test_a_fault_of_the_first_time_is_gone_the_next():
    async with weather() as (_, client):
        assert [(await client.chat("fault-503x2"))[0] for _ in range(3)] == [503, 503, 200]


@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {"stall", "stall-body"}))
@pytest.mark.parametrize("stream", [False, True])
async def test_after_every_fault_the_next_request_is_served_and_nothing_is_left_in_flight(
    name, stream
):
    async with weather() as (storm, client):
        with suppress(aiohttp.ClientError):
            await client.post(CHAT, chat(f"fault-{name}", stream=stream))
        assert (await client.chat())[0] == 200
        stats = storm.stats()
    assert (stats.in_flight, stats.ok, stats.arrived, stats.disconnects) == (0, 1, 2, 0)
    assert stats.faults + stats.rejected == 1


# --- log, counts and settings


async def test_the_log_and_the_numbers_are_there_over_http_too():
    async with weather(rpm=1) as (storm, client):
        await client.chat("one")
        await client.chat("two")
        _, _, log = await client.get("/storm/log")
        _, _, later = await client.get("/storm/log?since=1")
        nonsense, _, _ = await client.get("/storm/log?since=never")
        _, _, stats = await client.get("/storm/stats")
    lines = [json.loads(line) for line in log.splitlines()]
    assert [(line["id"], line["verdict"], line["outcome"]) for line in lines] == [
        (1, "admitted", "ok"),
        (2, "rejected", "rejected"),
    ]
    assert lines[0] == storm.log[0].as_dict()
    assert lines[0]["t_arrive"] <= lines[0]["t_first"] <= lines[0]["t_end"]
    assert [json.loads(line)["id"] for line in later.splitlines()] == [2]
    assert nonsense == 400
    counts = json.loads(stats)
    assert (
        counts["admitted"],
        counts["rejected"],
        counts["peak_in_flight"],
        counts["connections"],
    ) == (
        1,
        1,
        1,
        1,
    )


async def test_connections_are_counted_when_they_are_opened():
    async with open_storm() as storm:
        for _ in range(3):
            async with aiohttp.ClientSession(storm.url) as session:
                await Client(session).chat()
                await Client(session).chat()
        assert storm.stats().connections == 3
        assert storm.stats().arrived == 6


async def test_a_request_of_many_megabytes_is_read():
    body = BytesIO(json.dumps(chat("word" * 1_000_000)).encode())
    async with weather() as (_, client), client.session.post(CHAT, data=body) as reply:
        assert reply.status == 200
        assert (await reply.json())["usage"]["prompt_tokens"] == 1_000_000


async def test_it_listens_on_this_machine_only_and_says_where():
    async with open_storm(rpm=6) as storm:
        assert storm.url.startswith("http://127.0.0.1:")
        assert repr(storm) == f"<Storm {storm.url} <World 0 in flight, 0 admitted, 0 rejected>>"
        with pytest.raises(OSError, match="in use"):
            async with open_storm(port=int(storm.url.rpartition(":")[2])):
                pass


async def test_waiting_for_what_never_comes_is_an_error():
    async with open_storm() as storm:
        with pytest.raises(TimeoutError):
            await storm.until(lambda stats: stats.ok == 1, timeout=0)


async def test_a_setting_that_cannot_be_is_refused_before_anything_is_opened():
    with pytest.raises(ValueError, match="rpm is a positive number, not -1"):
        async with open_storm(rpm=-1):
            pass

"""OpenAI's Responses API: requests, replies and streams in the shapes that it sends."""

import json

import pytest

from abreast.assembly.names import find_model
from abreast.core.errors import (
    ConnectionLost,
    QuotaSpent,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    RequestRefused,
    ServerFault,
    Throttled,
    TooLong,
)
from abreast.core.outcome import Usage
from abreast.models.lanes import PROVIDERS, read_lanes
from abreast.models.media import MediaFile
from abreast.models.port import Message, Request, ToolCall
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.responses import OpenAIResponses
from tests.models.providers.test_openai import PRICES, WEATHER
from tests.models.serving import KEY, Recorded, ask, closing, events, serving

USAGE = {
    "input_tokens": 36,
    "input_tokens_details": {"cached_tokens": 20},
    "output_tokens": 87,
    "output_tokens_details": {"reasoning_tokens": 64},
    "total_tokens": 123,
}


def response(*output, status="completed", reason=None, **more):
    return {
        "id": "resp_67ccd3a9",
        "object": "response",
        "created_at": 1741476777,
        "status": status,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "instructions": None,
        "model": "gpt-5-2025-08-07",
        "output": list(output),
        "parallel_tool_calls": True,
        "store": False,
        "usage": USAGE,
    } | more


def message(*parts, **more):
    content = [
        {"type": "output_text", "text": part, "annotations": []} if isinstance(part, str) else part
        for part in parts
    ]
    return {
        "type": "message",
        "id": "msg_67ccd3ac",
        "status": "completed",
        "role": "assistant",
        "content": content,
    } | more


def call(number, name="get_weather", arguments='{"city":"Oslo"}'):
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def thought(number=1, **more):
    return {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": [],
        "encrypted_content": f"gAAAA-{number}",
    } | more


def stream(last, *inner):
    """The events of a response; `last` is the whole response."""
    begun = {**last, "status": "in_progress", "output": [], "usage": None}
    return [
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {"type": "response.in_progress", "sequence_number": 1, "response": begun},
        *inner,
        {"type": f"response.{last['status']}", "sequence_number": 9, "response": last},
    ]


def text_delta(piece):
    return {
        "type": "response.output_text.delta",
        "item_id": "msg_67ccd3ac",
        "output_index": 0,
        "content_index": 0,
        "delta": piece,
    }


def done(item, index=0):
    return {"type": "response.output_item.done", "output_index": index, "item": item}


async def asked(answer, request=None, *, hear=None, name="openai/gpt-5"):
    """The reply to a request, and the server that gave this answer."""
    async with (
        serving(answer) as server,
        closing(OpenAIResponses(name, f"{server.url}/v1", KEY)) as model,
    ):
        return await model.complete(request or ask(), hear), server


# --- which adapter


@pytest.mark.parametrize(
    ("lane", "table", "kind"),
    [
        ("openai", {}, OpenAIResponses),
        ("openai-chat", {}, OpenAI),
        ("openai", {"openai": {"base_url": "https://eu.api.openai.com/v1"}}, OpenAIResponses),
        ("openai", {"openai": {"base_url": "http://127.0.0.1:1/v1"}}, OpenAI),
        ("openai", {"openai": {"base_url": "https://not-api.openai.com/v1"}}, OpenAI),
        ("mine", {"mine": {"base_url": "https://api.openai.com/v1"}}, OpenAI),
        (
            "mine",
            {"mine": {"base_url": "http://127.0.0.1:1/v1", "kind": "openai-responses"}},
            OpenAIResponses,
        ),
    ],
)
async def test_responses_is_for_the_host_of_openai_and_where_a_lane_says_so(lane, table, kind):
    settings = read_lanes(table, "here")[lane]
    async with closing(find_model(f"{lane}/gpt-5", settings, "gpt-5", None)) as model:
        assert type(model) is kind
        assert model.model == "gpt-5"


def test_both_ways_to_openai_have_the_same_key_and_address():
    responses, chat = PROVIDERS["openai"], PROVIDERS["openai-chat"]
    assert (chat.base_url, chat.api_key_env) == (responses.base_url, responses.api_key_env)
    assert chat.adaptive


# --- requests


async def test_a_plain_request_has_nothing_that_was_not_asked_for():
    _, server = await asked(Recorded(response(message("Hi"))))
    assert server.body == {
        "model": "gpt-5",
        "input": [{"role": "user", "content": "Hello"}],
        "store": False,
    }
    assert server.paths == ["/v1/responses"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_every_option_is_written_as_the_api_names_it():
    request = ask(
        system="Be brief",
        temperature=0.5,
        seed=7,
        max_tokens=90,
        thinking_tokens=1000,
        reasoning="low",
        tools=(WEATHER,),
        schema={"type": "object", "properties": {"a": {"type": "integer"}}},
        extra={"service_tier": "flex", "text": {"verbosity": "low"}},
    )
    reply, server = await asked(Recorded(response(message('{"a": 1}'))), request)
    assert server.body == {
        "model": "gpt-5",
        "instructions": "Be brief",
        "input": [{"role": "user", "content": "Hello"}],
        "store": False,
        "temperature": 0.5,
        "max_output_tokens": 1090,
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "strict": False, **WEATHER}],
        "include": ["reasoning.encrypted_content"],
        "text": {
            "verbosity": "low",
            "format": {
                "type": "json_schema",
                "name": "reply",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
            },
        },
        "service_tier": "flex",
    }
    assert reply.changed == ()


async def test_what_the_api_cannot_be_told_is_said_in_the_reply():
    request = ask(stop=("END",), max_tokens=5)
    reply, server = await asked(Recorded(response(message("Hi"))), request)
    assert server.body["max_output_tokens"] == 16
    assert "stop" not in server.body
    assert reply.changed == ("without stop", "max_tokens 16")
    reply, server = await asked(Recorded(response(message("Hi"))), ask(thinking_tokens=500))
    assert "max_output_tokens" not in server.body
    assert reply.changed == ("without thinking_tokens",)
    reply, _ = await asked(Recorded(response(message("Hi"))), ask(max_tokens=16))
    assert reply.changed == ()


async def test_models_that_do_not_reason_are_not_asked_for_their_reasoning():
    request = ask(tools=(WEATHER,))
    _, server = await asked(Recorded(response(call(1))), request, name="openai/gpt-4o-mini")
    assert "include" not in server.body


async def test_a_conversation_with_tools_goes_through():
    turns = (
        Message("system", "Be exact"),
        Message("user", "Weather?"),
        Message("assistant", "", tool_calls=(ToolCall("call_1", "get_weather", "{}"),)),
        Message("tool", "sunny", tool_call_id="call_1"),
        Message("assistant", "Sunny."),
        Message("user", "Thanks"),
    )
    _, server = await asked(Recorded(response(message("Hi"))), Request(turns))
    assert server.body["input"] == [
        {"role": "system", "content": "Be exact"},
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"role": "assistant", "content": "Sunny."},
        {"role": "user", "content": "Thanks"},
    ]


async def test_a_tool_without_parameters_has_none():
    _, server = await asked(Recorded(response(call(1))), ask(tools=({"name": "now"},)))
    nothing = {"type": "object", "properties": {}}
    assert server.body["tools"] == [
        {"type": "function", "strict": False, "name": "now", "parameters": nothing}
    ]


# --- replies


async def test_a_reply_is_read_whole():
    reply, _ = await asked(Recorded(response(thought(), message("Hello! ", "How are you?"))))
    assert reply.text == "Hello! How are you?"
    assert reply.usage == Usage(
        1, 36, 87, None, estimate=False, cached_input_tokens=20, reasoning_tokens=64
    )
    assert (reply.finish, reply.model, reply.id) == ("stop", "gpt-5-2025-08-07", "resp_67ccd3a9")


async def test_usage_that_is_not_told_is_estimated():
    reply, _ = await asked(Recorded(response(message("12345"), usage=None)), ask("12345678"))
    assert reply.usage == Usage(1, 2, 2, None, estimate=True)


async def test_tool_calls_are_passed_through_by_the_id_that_their_answers_name():
    output = (thought(), message("Let me see."), call(1), call(2, "get_time", ""))
    reply, _ = await asked(Recorded(response(*output)), ask(tools=(WEATHER,)))
    assert reply.tool_calls == (
        ToolCall("call_1", "get_weather", '{"city":"Oslo"}'),
        ToolCall("call_2", "get_time", ""),
    )
    assert (reply.text, reply.finish) == ("Let me see.", "tool_calls")


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("new_reason", "other")]
)
async def test_the_reason_why_it_is_incomplete_is_mapped(reason, finish):
    body = response(message("Half a sen"), status="incomplete", reason=reason)
    assert (await asked(Recorded(body)))[0].finish == finish


async def test_a_bound_that_reasoning_used_up_is_an_empty_reply():
    body = response(thought(), status="incomplete", reason="max_output_tokens")
    with pytest.raises(ReplyBroken, match="max_tokens were used up") as caught:
        await asked(Recorded(body))
    assert caught.value.usage.reasoning_tokens == 64


async def test_a_refusal_is_refused_with_what_it_cost():
    refusal = {"type": "refusal", "refusal": "I'm sorry,\nI can't."}
    with pytest.raises(Refused, match=r"I'm sorry, I can't\.") as caught:
        await asked(Recorded(response(message(refusal))))
    assert caught.value.usage.output_tokens == 87


async def test_a_content_filter_is_refused_and_the_text_kept():
    body = response(message("half a sen"), status="incomplete", reason="content_filter")
    with pytest.raises(Refused) as caught:
        await asked(Recorded(body))
    assert "half a sen" in caught.value.raw


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("rate_limit_exceeded", "Rate limit reached, slow down", Throttled),
        ("server_error", "The model failed", ServerFault),
        ("server_is_overloaded", "Our servers are overloaded", ServerFault),
        ("insufficient_quota", "You exceeded your current quota", QuotaSpent),
        ("context_length_exceeded", "Your input exceeds the context window", TooLong),
        ("invalid_prompt", "Flagged by our usage policy", Refused),
        ("invalid_prompt", "Invalid prompt", RequestRefused),
    ],
)
async def test_a_failed_response_is_its_error_whole_or_streamed(code, message, kind):
    failed = response(status="failed", error={"code": code, "message": message}, usage=None)
    flat = {"type": "error", "code": code, "message": message, "param": None}
    deep = {"type": "error", "error": {"type": code, "code": None, "message": message}}
    for answer in (
        Recorded(failed),
        events(*stream(failed), named=True),
        events(stream(failed)[0], flat, named=True),
        events(stream(failed)[0], deep, named=True),
    ):
        with pytest.raises(kind, match=message):
            await asked(answer, hear=[].append)


@pytest.mark.parametrize(
    "body",
    [
        response(),
        response(message("")),
        response(status="in_progress"),
        response(output=None),
        response("text"),
        response({"type": "message"}),
        response({"type": "function_call"}),
        response(message(7)),
        {},
        [],
    ],
)
async def test_a_reply_without_its_shape_or_without_text_is_broken(body):
    with pytest.raises(ReplyBroken, match="openai/gpt-5") as caught:
        await asked(Recorded(body))
    assert json.loads(caught.value.raw) == body


async def test_items_of_other_kinds_are_passed_over():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    assert (await asked(Recorded(response(search, message("Hi")))))[0].text == "Hi"


# --- schemas


async def test_a_value_is_checked_by_its_own_schema():
    reply, _ = await asked(
        Recorded(response(message('{"items": [{}, {"price": 2}]}'))), ask(schema=PRICES)
    )
    assert reply.value == {"items": [{}, {"price": 2}]}
    with pytest.raises(ReplyInvalid, match=r"\$\.items\[0\]\.price must be number"):
        await asked(Recorded(response(message('{"items": [{"price": ""}]}'))), ask(schema=PRICES))


async def test_a_schema_of_something_else_than_an_object_goes_in_a_box():
    schema = {"type": "array", "items": {"type": "integer"}}
    whole, heard = response(message('{"value": [1, 2]}')), []
    reply, server = await asked(Recorded(whole), ask(schema=schema))
    assert server.body["text"]["format"]["schema"]["properties"] == {"value": schema}
    assert (reply.value, reply.text) == ([1, 2], "[1, 2]")
    pieces = stream(whole, text_delta('{"value"'), text_delta(": [1, 2]}"))
    reply, _ = await asked(events(*pieces, named=True), ask(schema=schema), hear=heard.append)
    assert (reply.value, heard) == ([1, 2], ["[1, 2]"])


# --- streams


async def test_a_stream_is_told_piece_by_piece():
    heard = []
    whole = response(thought(), message("Hello"))
    told = stream(whole, text_delta("Hel"), text_delta("lo"), done(message("Hello"), 1))
    reply, server = await asked(events(*told, named=True), hear=heard.append)
    assert heard == ["Hel", "lo"]
    assert (reply.text, reply.finish, reply.id) == ("Hello", "stop", "resp_67ccd3a9")
    assert reply.usage.reasoning_tokens == 64
    assert 0 < reply.first_token <= reply.seconds
    assert server.body["stream"] is True


@pytest.mark.parametrize("output", [None, []])
async def test_a_last_event_without_its_output_ends_what_came_before(output):
    whole = response(output=output)
    told = stream(whole, text_delta("Hello"), done(message("Hello")), done(call(1), 1))
    reply, _ = await asked(events(*told, named=True), hear=[].append)
    assert (reply.text, [each.id for each in reply.tool_calls]) == ("Hello", ["call_1"])


async def test_tool_calls_of_a_stream_are_whole():
    arguments = [
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"city"'},
        {"type": "response.function_call_arguments.done", "item_id": "fc_1", "arguments": "..."},
    ]
    heard = []
    told = stream(response(call(1)), *arguments, done(call(1)))
    reply, _ = await asked(events(*told, named=True), hear=heard.append)
    assert reply.tool_calls == (ToolCall("call_1", "get_weather", '{"city":"Oslo"}'),)
    assert (reply.finish, heard) == ("tool_calls", [])


async def test_a_stream_that_is_incomplete_has_its_reason():
    whole = response(message("Hel"), status="incomplete", reason="max_output_tokens")
    reply, _ = await asked(events(*stream(whole, text_delta("Hel")), named=True), hear=[].append)
    assert (reply.text, reply.finish) == ("Hel", "length")


async def test_a_refusal_in_a_stream_is_refused():
    whole = response(message({"type": "refusal", "refusal": "I cannot."}))
    piece = {"type": "response.refusal.delta", "delta": "I can"}
    with pytest.raises(Refused, match="I cannot"):
        await asked(events(*stream(whole, piece), named=True), hear=[].append)


async def test_a_stream_without_its_last_event_was_cut_off():
    told = stream(response(message("Hello")), text_delta("Hel"))[:-1]
    with pytest.raises(ConnectionLost, match="before its end") as caught:
        await asked(events(*told, named=True), hear=[].append)
    assert "Hel" in caught.value.raw


@pytest.mark.parametrize(
    "event",
    [
        {"no": 1},
        text_delta(7),
        {"type": "response.completed"},
        {"type": "response.completed", "response": {"output": 3}},
        7,
    ],
)
async def test_an_event_without_its_shape_is_broken(event):
    begun = stream(response(message("Hello")))[0]
    with pytest.raises(ReplyBroken):
        await asked(events(begun, event), hear=[].append)


# --- files


async def test_images_and_pdf_files_stand_before_the_text():
    image = MediaFile.of(bytes.fromhex("89504e470d0a1a0a0000000d49484452" + "00" * 16), "dot.png")
    paper = MediaFile.of(b"%PDF-1.4 tiny", "paper.pdf")
    turn = Message("user", "What is it?", files=(image, paper))
    _, server = await asked(Recorded(response(message("A dot"))), Request((turn,)))
    (item,) = server.body["input"]
    assert [part["type"] for part in item["content"]] == [
        "input_image",
        "input_file",
        "input_text",
    ]
    assert item["content"][0]["image_url"].startswith("data:image/png;base64,")
    assert item["content"][1]["filename"] == "paper.pdf"

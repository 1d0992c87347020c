"""Chat completions, in the forms of OpenAI and of compatible endpoints."""

import json

import pytest

from abreast.core.errors import (
    ConnectionLost,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    RequestRefused,
    ServerFault,
    Throttled,
)
from abreast.core.outcome import Usage
from abreast.models.port import Message, Request, ToolCall
from abreast.models.providers.openai import OpenAI
from abreast.testing.storm import open_storm
from tests.models.serving import KEY, Recorded, ask, closing, events, serving

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
PRICES = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number"}}},
        }
    },
    "required": ["items"],
}


def completion(message, finish="stop", **more):
    return {
        "id": "chatcmpl-B9MBs8",
        "object": "chat.completion",
        "created": 1741570283,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 19,
            "completion_tokens": 10,
            "total_tokens": 29,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": "fp_fc9f1d7035",
    } | more


def said(text, finish="stop", **more):
    return completion(
        {"role": "assistant", "content": text, "refusal": None, "annotations": []}, finish, **more
    )


def chunk(delta=None, finish=None, **more):
    choices = (
        []
        if delta is None
        else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    )
    return {
        "id": "chatcmpl-123",
        "object": "chat.completion.chunk",
        "created": 1694268190,
        "model": "gpt-4o-mini",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": choices,
        "usage": None,
    } | more


USAGE = {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}
STREAM = [
    chunk({"role": "assistant", "content": "", "refusal": None}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({}, "stop"),
    chunk(usage=USAGE),
]


async def asked(answer, request=None, *, hear=None, **options):
    """The reply to a request, and the server that gave this answer."""
    async with (
        serving(answer) as server,
        closing(OpenAI("openai/gpt-4o", f"{server.url}/v1", KEY, **options)) as model,
    ):
        return await model.complete(request or ask(), hear), server


# --- requests


async def test_a_plain_request_has_nothing_that_was_not_asked_for():
    _, server = await asked(Recorded(said("Hi")))
    assert server.body == {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
    assert server.paths == ["/v1/chat/completions"]
    headers = server.headers[0]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"


async def test_every_option_is_written_as_the_endpoint_names_it():
    request = ask(
        system="Be brief",
        temperature=0.5,
        seed=7,
        stop=("END",),
        max_tokens=9,
        tools=(WEATHER,),
        extra={"top_p": 0.1},
    )
    _, server = await asked(Recorded(said("Hi")), request)
    assert server.body == {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "Hello"},
        ],
        "temperature": 0.5,
        "seed": 7,
        "stop": ["END"],
        "max_completion_tokens": 9,
        "tools": [{"type": "function", "function": WEATHER}],
        "top_p": 0.1,
    }


async def test_what_an_endpoint_does_not_know_is_left_out():
    options = {"max_tokens": "max_tokens", "seed": False, "stream_usage": False}
    _, server = await asked(
        events(*STREAM, done=True), ask(seed=7, max_tokens=9), hear=[].append, **options
    )
    assert server.body.keys() == {"model", "messages", "max_tokens", "stream"}


async def test_no_key_sends_no_authorization():
    async with (
        serving(Recorded(said("Hi"))) as server,
        closing(OpenAI("ollama/llama3.2", f"{server.url}/v1")) as model,
    ):
        await model.complete(ask())
    assert "authorization" not in server.headers[0]
    assert server.body["model"] == "llama3.2"


async def test_a_query_of_the_base_url_stays_behind_the_path():
    async with serving(Recorded(said("Hi"))) as server:
        async with closing(
            OpenAI("azure/gpt", f"{server.url}/openai/?api-version=2024", KEY)
        ) as model:
            await model.complete(ask())
    assert server.paths == ["/openai/chat/completions?api-version=2024"]


async def test_a_conversation_with_tools_goes_through():
    turns = (
        Message("user", "Weather?"),
        Message(
            "assistant", "", tool_calls=(ToolCall("call_1", "get_weather", '{"city":"Oslo"}'),)
        ),
        Message("tool", "sunny", tool_call_id="call_1"),
    )
    _, server = await asked(Recorded(said("Sunny")), Request(turns, tools=(WEATHER,)))
    function = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
    assert server.body["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "call_1"},
    ]


async def test_a_request_that_is_no_json_is_refused_before_it_is_sent():
    async with (
        serving(Recorded(said("Hi"))) as server,
        closing(OpenAI("openai/x", server.url, KEY)) as model,
    ):
        for request in (
            ask(extra={"x": object()}),
            ask(temperature=float("nan")),
            ask(schema={"type": "nonsense"}),
        ):
            with pytest.raises(RequestRefused, match="openai/x"):
                await model.complete(request)
        assert server.bodies == []


# --- replies


async def test_a_reply_is_read_whole():
    reply, _ = await asked(Recorded(said("Hello! How can I help?")))
    assert reply.text == "Hello! How can I help?"
    assert reply.usage == Usage(1, 19, 10, None, estimate=False)
    assert (reply.finish, reply.model, reply.id) == ("stop", "gpt-4o-2024-08-06", "chatcmpl-B9MBs8")
    assert reply.seconds > 0
    assert reply.first_token is None


@pytest.mark.parametrize(
    ("told", "finish"), [("length", "length"), ("stop", "stop"), ("new_reason", "other")]
)
async def test_the_reason_why_it_ended_is_mapped(told, finish):
    assert (await asked(Recorded(said("Hi", told))))[0].finish == finish


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": -1, "completion_tokens": "2"}]
)
async def test_usage_that_is_not_told_is_estimated(usage):
    reply, _ = await asked(Recorded(said("12345", usage=usage)), ask("12345678", system="1234"))
    assert reply.usage == Usage(1, 3, 2, None, estimate=True)


async def test_tool_calls_are_passed_through():
    call = {
        "id": "call_abc",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    }
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    reply, _ = await asked(Recorded(completion(message, "tool_calls")), ask(tools=(WEATHER,)))
    assert reply.tool_calls == (ToolCall("call_abc", "get_weather", '{"city": "Oslo"}'),)
    assert (reply.text, reply.finish) == ("", "tool_calls")


async def test_a_content_in_parts_is_one_text():
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert (await asked(Recorded(said(parts))))[0].text == "ab"


async def test_half_a_surrogate_pair_is_mended_or_replaced():
    body = json.dumps(said("PLACE")).replace("PLACE", "\\ud83d\\ude00 \\ud83d!").encode()
    reply, _ = await asked(Recorded(raw=body))
    assert reply.text == "😀 \ufffd!"


@pytest.mark.parametrize(
    "body",
    [
        completion({"role": "assistant"}, choices=[]),
        completion({"role": "assistant"}, choices=None),
        completion("text"),
        said(7),
        said(""),
        said(None, "length"),
        [],
        "text",
        {},
    ],
)
async def test_a_reply_without_its_shape_or_without_text_is_broken(body):
    with pytest.raises(ReplyBroken, match="openai/gpt-4o") as caught:
        await asked(Recorded(body))
    assert json.loads(caught.value.raw) == body
    assert caught.value.status == 200


async def test_an_empty_text_is_right_where_a_stop_could_come_first():
    assert (await asked(Recorded(said("")), ask(stop=("\n",))))[0].text == ""


@pytest.mark.parametrize("raw", [b"", b"[" * 100_000, b'{"a": \xff}', b"1" * 5000])
async def test_what_is_no_json_is_broken(raw):
    with pytest.raises(ReplyBroken):
        await asked(Recorded(raw=raw))


@pytest.mark.parametrize("hear", [None, [].append])
async def test_json_under_another_type_is_broken(hear):
    with pytest.raises(ReplyBroken, match="text/plain"):
        await asked(Recorded(said("Hi"), kind="text/plain"), hear=hear)


async def test_a_refusal_is_refused_with_what_it_cost():
    message = {
        "role": "assistant",
        "content": None,
        "refusal": "I'm sorry,\nI can't assist with that.",
    }
    with pytest.raises(Refused, match="I'm sorry, I can't assist") as caught:
        await asked(Recorded(completion(message)))
    assert caught.value.usage.output_tokens == 10


async def test_a_content_filter_is_refused_and_the_text_kept():
    with pytest.raises(Refused) as caught:
        await asked(Recorded(said("half a sen", "content_filter")))
    assert "half a sen" in caught.value.raw


async def test_an_error_inside_a_reply_that_began_well_is_the_error():
    with pytest.raises(Throttled, match="slow down"):
        await asked(Recorded({"error": {"message": "slow down", "code": 429}}))
    with pytest.raises(ServerFault):
        await asked(Recorded({"error": "upstream"}))


# --- schemas


async def test_a_schema_is_sent_in_its_strict_form_and_checked_in_its_own():
    reply, server = await asked(Recorded(said('{"items": [{}, {"price": 2}]}')), ask(schema=PRICES))
    sent = server.body["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["strict"] is True
    inner = sent["json_schema"]["schema"]["properties"]["items"]["items"]
    assert (inner["required"], inner["additionalProperties"]) == (["price"], False)
    assert reply.value == {
        "items": [{}, {"price": 2}]
    }  # `price` is required of the model, not of the value


async def test_a_reply_that_does_not_obey_is_invalid_and_tells_the_place():
    text = '{"items": [{"price": 1}, {}, {"price": "2"}]}'
    with pytest.raises(ReplyInvalid, match=r"\$\.items\[2\]\.price must be number") as caught:
        await asked(Recorded(said(text)), ask(schema=PRICES))
    assert caught.value.raw == text
    assert caught.value.usage.input_tokens == 19


async def test_a_reply_cut_off_in_the_middle_of_its_json_says_so():
    with pytest.raises(ReplyInvalid, match="cut off at max_tokens"):
        await asked(Recorded(said('{"items": [', "length")), ask(schema=PRICES))


async def test_a_schema_of_something_else_than_an_object_goes_in_a_box():
    schema = {"type": "array", "items": {"type": "integer"}}
    reply, server = await asked(Recorded(said('{"value": [1, 2]}')), ask(schema=schema))
    assert server.body["response_format"]["json_schema"]["schema"]["properties"] == {
        "value": schema
    }
    assert (reply.value, reply.text) == ([1, 2], "[1, 2]")
    heard = []
    pieces = [chunk({"content": '{"value"'}), chunk({"content": ": [1, 2]}"}), chunk({}, "stop")]
    reply, _ = await asked(events(*pieces, done=True), ask(schema=schema), hear=heard.append)
    assert (reply.value, heard) == ([1, 2], ["[1, 2]"])


@pytest.mark.parametrize(
    ("way", "sent"), [("json_object", {"type": "json_object"}), ("none", None)]
)
async def test_where_schemas_are_not_known_the_prompt_tells_it(way, sent):
    request = ask(system="Be brief", schema=PRICES)
    reply, server = await asked(
        Recorded(said('```json\n{"items": []}\n```')), request, structured=way
    )
    assert server.body.get("response_format") == sent
    system = server.body["messages"][0]["content"]
    assert system.startswith("Be brief\n\n")
    assert json.dumps(PRICES) in system
    assert reply.value == {"items": []}


async def test_a_tool_call_instead_of_a_value_has_no_value():
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    reply, _ = await asked(
        Recorded(completion(message, "tool_calls")), ask(tools=(WEATHER,), schema=PRICES)
    )
    assert reply.value is None
    assert len(reply.tool_calls) == 1


# --- streams


async def test_a_stream_is_told_piece_by_piece():
    heard = []
    reply, server = await asked(events(*STREAM, done=True), hear=heard.append)
    assert heard == ["Hel", "lo"]
    assert reply.text == "Hello"
    assert reply.usage == Usage(1, 19, 10, None)
    assert (reply.finish, reply.model, reply.id) == ("stop", "gpt-4o-mini", "chatcmpl-123")
    assert 0 < reply.first_token <= reply.seconds
    assert server.body["stream"] is True
    assert server.body["stream_options"] == {"include_usage": True}


async def test_a_stream_without_usage_is_estimated():
    reply, _ = await asked(events(*STREAM[:-1], done=True), hear=[].append)
    assert reply.usage == Usage(1, 2, 2, None, estimate=True)


async def test_tool_calls_in_pieces_are_put_together():
    def call(index, **part):
        return chunk({"tool_calls": [{"index": index, **part}]})

    stream = [
        chunk({"role": "assistant", "content": None}),
        call(0, id="call_a", type="function", function={"name": "get_weather", "arguments": ""}),
        call(0, function={"arguments": '{"city"'}),
        call(1, id="call_b", type="function", function={"name": "get_time", "arguments": ""}),
        call(0, function={"arguments": ':"Oslo"}'}),
        call(1, function={"arguments": "{}"}),
        chunk({}, "tool_calls"),
    ]
    heard = []
    reply, _ = await asked(events(*stream, done=True), hear=heard.append)
    assert reply.tool_calls == (
        ToolCall("call_a", "get_weather", '{"city":"Oslo"}'),
        ToolCall("call_b", "get_time", "{}"),
    )
    assert (reply.finish, heard) == ("tool_calls", [])


async def test_a_stream_without_its_end_marker_was_cut_off():
    with pytest.raises(ConnectionLost, match="before its end") as caught:
        await asked(events(*STREAM), hear=[].append)
    assert "Hel" in caught.value.raw
    reply, _ = await asked(
        events(*STREAM), hear=[].append, done=False
    )  # an endpoint that has no such marker
    assert (reply.text, reply.usage.estimate) == ("Hello", False)
    with pytest.raises(ConnectionLost):
        await asked(events(*STREAM[:-2]), hear=[].append, done=False)


async def test_an_end_marker_may_lack_its_line_end():
    whole = events(*STREAM, done=True)
    reply, _ = await asked(Recorded(raw=whole.raw.rstrip(), kind=whole.kind), hear=[].append)
    assert reply.text == "Hello"


async def test_a_refusal_in_a_stream_is_refused():
    stream = [
        chunk({"role": "assistant", "content": "", "refusal": ""}),
        chunk({"refusal": "I can"}),
        chunk({"refusal": "not."}),
    ]
    with pytest.raises(Refused, match="I cannot"):
        await asked(events(*stream, chunk({}, "stop"), done=True), hear=[].append)


async def test_an_error_in_a_stream_is_the_error():
    broken = {"error": {"message": "The server is overloaded", "type": "overloaded_error"}}
    with pytest.raises(ServerFault, match="overloaded") as caught:
        await asked(events(STREAM[0], STREAM[1], broken), hear=[].append)
    assert caught.value.status == 529


@pytest.mark.parametrize(
    "event", [{"choices": "x"}, {"no": 1}, chunk({"content": 7}), chunk({"tool_calls": 3}), 7]
)
async def test_an_event_without_its_shape_is_broken(event):
    with pytest.raises(ReplyBroken):
        await asked(events(STREAM[0], event, done=True), hear=[].append)


async def test_an_endpoint_that_does_not_stream_is_heard_once():
    heard = []
    reply, _ = await asked(Recorded(said("Hello")), hear=heard.append)
    assert (heard, reply.text, reply.first_token) == (["Hello"], "Hello", None)


async def test_a_stream_says_the_same_as_the_whole():
    async with (
        open_storm() as storm,
        closing(OpenAI("openai/storm", f"{storm.url}/v1", KEY)) as model,
    ):
        for request in (
            ask(),
            ask(max_tokens=3),
            ask("call get_weather", tools=(WEATHER,)),
            ask(schema=PRICES),
        ):
            heard = []
            whole, stream = (
                await model.complete(request),
                await model.complete(request, heard.append),
            )
            assert (whole.text, whole.value, whole.finish, whole.usage) == (
                stream.text,
                stream.value,
                stream.finish,
                stream.usage,
            )
            assert [call.arguments for call in whole.tool_calls] == [
                call.arguments for call in stream.tool_calls
            ]
            assert "".join(heard) == stream.text

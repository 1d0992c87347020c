"""Messages, in the shapes that Anthropic documents."""

import json

import pytest

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
    Unavailable,
)
from abreast.core.outcome import Usage
from abreast.models.port import Message, Request, ToolCall
from abreast.models.providers.anthropic import Anthropic
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
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def message(*content, reason="end_turn", **more):
    return {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": list(content),
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 5,
            "output_tokens": 6,
            "service_tier": "standard",
        },
    } | more


def text(said):
    return {"type": "text", "text": said}


def use(name, arguments, number=1):
    return {"type": "tool_use", "id": f"toolu_0{number}", "name": name, "input": arguments}


def start(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, **part):
    return {"type": "content_block_delta", "index": index, "delta": part}


def stop(index):
    return {"type": "content_block_stop", "index": index}


BEGIN = {
    "type": "message_start",
    "message": message(reason=None, usage={"input_tokens": 25, "output_tokens": 1}),
}
PING = {"type": "ping"}
END = {"type": "message_stop"}


def ended(reason="end_turn"):
    said = {"stop_reason": reason, "stop_sequence": None}
    return {"type": "message_delta", "delta": said, "usage": {"output_tokens": 15}}


STREAM = [
    BEGIN,
    start(0, text("")),
    PING,
    delta(0, type="text_delta", text="Hel"),
    delta(0, type="text_delta", text="lo"),
    stop(0),
    ended(),
    END,
]


def flow(*documents):
    return events(*documents, named=True)


async def asked(answer, request=None, *, hear=None, **options):
    async with serving(answer) as server:
        async with closing(
            Anthropic("anthropic/claude-x", f"{server.url}/v1", KEY, **options)
        ) as model:
            return await model.complete(request or ask(), hear), server


async def test_a_plain_request_has_the_bound_that_the_api_demands():
    _, server = await asked(Recorded(message(text("Hi"))))
    plain = {
        "model": "claude-x",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "Hello"}],
    }
    assert server.body == plain
    assert server.paths == ["/v1/messages"]
    assert server.headers[0]["x-api-key"] == KEY
    assert server.headers[0]["anthropic-version"] == "2023-06-01"


async def test_every_option_is_written_as_the_api_names_it():
    request = Request(
        (Message("system", "Be kind"), Message("user", "Hello")),
        system="Be brief",
        temperature=0.5,
        seed=7,
        stop=("END",),
        max_tokens=9,
        tools=(WEATHER,),
        extra={"top_k": 4},
    )
    _, server = await asked(Recorded(message(text("Hi"))), request)
    assert server.body == {
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello"}],
        "system": "Be brief\n\nBe kind",
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "tools": [
            {
                "name": "get_weather",
                "description": "The weather of a city",
                "input_schema": WEATHER["parameters"],
            }
        ],
        "top_k": 4,
    }


async def test_what_tools_answered_at_once_is_one_turn():
    calls = (ToolCall("t1", "get_weather", '{"city": "Oslo"}'), ToolCall("t2", "get_time", ""))
    turns = (
        Message("user", "Well?"),
        Message("assistant", "Let me see", tool_calls=calls),
        Message("tool", "sunny", tool_call_id="t1"),
        Message("tool", "noon", tool_call_id="t2"),
        Message("user", "And?"),
    )
    _, server = await asked(Recorded(message(text("Hi"))), Request(turns))
    assert server.body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                text("Let me see"),
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "t2", "name": "get_time", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "noon"},
                text("And?"),
            ],
        },
    ]


async def test_arguments_that_are_no_object_are_refused_before_they_are_sent():
    turns = (Message("assistant", "", tool_calls=(ToolCall("t1", "f", "[1]"),)),)
    with pytest.raises(RequestRefused, match="t1"):
        await asked(Recorded(message(text("Hi"))), Request(turns))


async def test_a_message_is_read_whole():
    reply, _ = await asked(
        Recorded(message({"type": "thinking", "thinking": "hm"}, text("Hi "), text("there")))
    )
    assert reply.text == "Hi there"
    # What was cached is input too.
    assert reply.usage == Usage(1, 20, 6, None, cached_input_tokens=5, cache_write_tokens=3)
    assert (reply.finish, reply.model, reply.id) == (
        "stop",
        "claude-sonnet-4-5-20250929",
        "msg_01XFDUDYJgAACzvnptvVoYEL",
    )


@pytest.mark.parametrize(
    ("told", "finish"),
    [
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "other"),
    ],
)
async def test_the_reason_why_it_ended_is_mapped(told, finish):
    assert (await asked(Recorded(message(text("Hi"), reason=told))))[0].finish == finish


async def test_tool_uses_are_passed_through():
    body = message(text("Let me see"), use("get_weather", {"city": "Malmö"}), reason="tool_use")
    reply, _ = await asked(Recorded(body), ask(tools=(WEATHER,)))
    assert reply.tool_calls == (ToolCall("toolu_01", "get_weather", '{"city": "Malmö"}'),)
    assert (reply.text, reply.finish) == ("Let me see", "tool_calls")


async def test_a_schema_is_a_tool_that_must_be_called():
    reply, server = await asked(
        Recorded(message(use("final_reply", {"x": 3}), reason="tool_use")),
        ask(schema=POINT),
        structured="tool",
    )
    assert server.body["tool_choice"] == {"type": "tool", "name": "final_reply"}
    assert server.body["tools"][0]["input_schema"] == POINT
    assert (reply.value, json.loads(reply.text)) == ({"x": 3}, {"x": 3})
    assert (reply.finish, reply.tool_calls) == ("stop", ())


async def test_a_schema_is_the_format_of_the_output_if_it_has_a_strict_form():
    schema = {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 3}
    reply, server = await asked(Recorded(message(text('{"value": [3]}'))), ask(schema=schema))
    form = server.body["output_config"]["format"]
    assert form["type"] == "json_schema"
    inner = form["schema"]["properties"]["value"]
    assert inner == {
        "type": "array",
        "items": {"type": "integer", "description": "minimum: 1"},
        "description": "maxItems: 3",
    }
    assert (reply.value, "tools" in server.body) == ([3], False)
    with pytest.raises(ReplyInvalid):  # the bounds are checked here
        await asked(Recorded(message(text('{"value": [0]}'))), ask(schema=schema))
    loose = {"type": "object", "properties": {"x": {"type": "integer"}}, "not": {"required": ["y"]}}
    _, server = await asked(Recorded(message(use("final_reply", {"x": 3}))), ask(schema=loose))
    assert "output_config" not in server.body
    assert server.body["tool_choice"]["name"] == "final_reply"


async def test_beside_other_tools_any_may_be_called():
    body = message(use("get_weather", {"city": "Oslo"}), reason="tool_use")
    reply, server = await asked(
        Recorded(body), ask(schema=POINT, tools=(WEATHER,)), structured="tool"
    )
    assert server.body["tool_choice"] == {"type": "any"}
    assert [tool["name"] for tool in server.body["tools"]] == ["get_weather", "final_reply"]
    assert (reply.value, reply.tool_calls[0].name) == (None, "get_weather")


async def test_a_value_that_does_not_obey_is_invalid():
    body = message(use("final_reply", {"x": "three"}), reason="tool_use")
    with pytest.raises(ReplyInvalid, match=r"\$\.x must be integer"):
        await asked(Recorded(body), ask(schema=POINT))
    with pytest.raises(ReplyInvalid, match="cut off at max_tokens"):
        await asked(
            Recorded(message(use("final_reply", {}), reason="max_tokens")), ask(schema=POINT)
        )


async def test_a_schema_of_something_else_than_an_object_goes_in_a_box():
    schema = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
    body = message(use("final_reply", {"value": [1, 2]}), reason="tool_use")
    reply, server = await asked(Recorded(body), ask(schema=schema), structured="tool")
    sent = server.body["tools"][0]["input_schema"]
    assert (sent["type"], sent["$defs"]) == ("object", schema["$defs"])
    assert (reply.value, reply.text) == ([1, 2], "[1, 2]")


async def test_a_refusal_is_refused():
    with pytest.raises(Refused) as caught:
        await asked(Recorded(message(reason="refusal")))
    assert caught.value.usage.output_tokens == 6
    with pytest.raises(Refused, match="I'd rather not"):
        await asked(
            flow(BEGIN, start(0, text("I'd rather not")), stop(0), ended("refusal"), END),
            hear=[].append,
        )


@pytest.mark.parametrize(
    "body", [message(), {"type": "message"}, message("text"), message({"type": "text"}), []]
)
async def test_a_message_without_its_shape_or_without_content_is_broken(body):
    with pytest.raises(ReplyBroken):
        await asked(Recorded(body))


# --- streams


async def test_a_stream_is_told_piece_by_piece():
    heard = []
    reply, server = await asked(flow(*STREAM), hear=heard.append)
    assert heard == ["Hel", "lo"]
    assert (reply.text, reply.finish, reply.usage) == ("Hello", "stop", Usage(1, 25, 15, None))
    assert (reply.model, reply.id) == ("claude-sonnet-4-5-20250929", "msg_01XFDUDYJgAACzvnptvVoYEL")
    assert 0 < reply.first_token <= reply.seconds
    assert server.body["stream"] is True


async def test_thinking_is_not_told_and_unknown_events_are_passed_over():
    stream = [
        BEGIN,
        start(0, {"type": "thinking", "thinking": ""}),
        delta(0, type="thinking_delta", thinking="hm"),
        delta(0, type="signature_delta", signature="EqQB"),
        stop(0),
        {"type": "new_kind_of_event", "x": 1},
        start(1, text("")),
        delta(1, type="text_delta", text="Hi"),
        stop(1),
        ended(),
        END,
    ]
    heard = []
    reply, _ = await asked(flow(*stream), hear=heard.append)
    assert (reply.text, heard) == ("Hi", ["Hi"])


async def test_tool_uses_in_pieces_are_put_together():
    stream = [
        BEGIN,
        start(0, text("")),
        delta(0, type="text_delta", text="Let me see"),
        stop(0),
        start(1, use("get_weather", {})),
        delta(1, type="input_json_delta", partial_json=""),
        delta(1, type="input_json_delta", partial_json='{"city":'),
        delta(1, type="input_json_delta", partial_json=' "Oslo"}'),
        stop(1),
        start(2, use("get_time", {}, 2)),
        stop(2),
        ended("tool_use"),
        END,
    ]
    heard = []
    reply, _ = await asked(flow(*stream), ask(tools=(WEATHER,)), hear=heard.append)
    assert reply.tool_calls == (
        ToolCall("toolu_01", "get_weather", '{"city": "Oslo"}'),
        ToolCall("toolu_02", "get_time", "{}"),
    )
    assert (heard, reply.finish) == (["Let me see"], "tool_calls")


async def test_a_value_in_pieces_is_told_as_the_text():
    stream = [BEGIN, start(0, use("final_reply", {}))]
    stream += [delta(0, type="input_json_delta", partial_json=piece) for piece in ('{"x"', ": 3}")]
    heard = []
    reply, _ = await asked(
        flow(*stream, stop(0), ended("tool_use"), END), ask(schema=POINT), hear=heard.append
    )
    assert (reply.value, reply.text, heard) == ({"x": 3}, '{"x": 3}', ['{"x"', ": 3}"])


async def test_a_stream_without_its_end_was_cut_off():
    for cut in range(1, len(STREAM)):
        with pytest.raises(ConnectionLost, match="before its end") as caught:
            await asked(flow(*STREAM[:cut]), hear=[].append)
        assert "message_start" in caught.value.raw


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", ServerFault),
        ("rate_limit_error", Throttled),
        ("api_error", ServerFault),
    ],
)
async def test_an_error_in_a_stream_is_the_error(kind, error):
    broken = {
        "type": "error",
        "error": {"type": kind, "message": "Overloaded"},
        "request_id": "req_1",
    }
    with pytest.raises(error, match="Overloaded"):
        await asked(flow(*STREAM[:4], broken), hear=[].append)


@pytest.mark.parametrize(
    "event", [delta(9, type="text_delta", text="x"), {"type": "message_delta"}, start(0, 7)]
)
async def test_an_event_without_its_shape_is_broken(event):
    with pytest.raises(ReplyBroken):
        await asked(flow(BEGIN, event, END), hear=[].append)


# --- errors of its own


@pytest.mark.parametrize(
    ("status", "kind", "said", "error"),
    [
        (
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            TooLong,
        ),
        (413, "request_too_large", "Request exceeds the maximum size", TooLong),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API",
            QuotaSpent,
        ),
        (400, "invalid_request_error", "Output blocked by content filtering policy", Refused),
        (400, "invalid_request_error", "max_tokens: 100000 > 8192", RequestRefused),
        (529, "overloaded_error", "Overloaded", Unavailable),
    ],
)
async def test_its_errors_are_known_by_their_shape(status, kind, said, error):
    body = {
        "type": "error",
        "error": {"type": kind, "message": said},
        "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    }
    with pytest.raises(error) as caught:
        await asked(Recorded(body, status=status))
    assert type(caught.value) is error
    assert said in str(caught.value)


async def test_a_stream_says_the_same_as_the_whole():
    async with (
        open_storm() as storm,
        closing(Anthropic("anthropic/storm", f"{storm.url}/v1", KEY)) as model,
    ):
        for request in (
            ask(),
            ask(max_tokens=3),
            ask("call get_weather", tools=(WEATHER,)),
            ask(schema=POINT),
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

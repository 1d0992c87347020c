"""generateContent, in the shapes that Google documents."""

import pytest

from abreast.core.errors import (
    ConnectionLost,
    KeyRefused,
    NoSuchModel,
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
from abreast.models.providers.gemini import Gemini
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
USAGE = {
    "promptTokenCount": 4,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 16,
}


def generated(*parts, reason="STOP", **more):
    candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {
        "candidates": [candidate],
        "usageMetadata": USAGE,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "mAitaLmkHPPlz7IPvtfUqQ4",
    } | more


def text(said, **more):
    return {"text": said} | more


STREAM = [
    generated(text("Hel"), reason=None),
    generated(text("lo"), reason=None),
    generated(text("!")),
]


def flow(*documents):
    return events(*documents, end="\r\n\r\n")


async def asked(answer, request=None, *, hear=None, name="gemini/gemini-2.5-flash"):
    async with (
        serving(answer) as server,
        closing(Gemini(name, f"{server.url}/v1beta", KEY)) as model,
    ):
        return await model.complete(request or ask(), hear), server


async def test_a_plain_request_has_nothing_that_was_not_asked_for():
    _, server = await asked(Recorded(generated(text("Hi"))))
    assert server.body == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
    assert server.paths == ["/v1beta/models/gemini-2.5-flash:generateContent"]
    assert server.headers[0]["x-goog-api-key"] == KEY
    assert KEY not in server.paths[0]


async def test_a_tuned_model_keeps_its_path():
    _, server = await asked(Recorded(generated(text("Hi"))), name="gemini/tunedModels/my model?x")
    assert server.paths == ["/v1beta/tunedModels/my%20model%3Fx:generateContent"]


async def test_every_option_is_written_as_the_api_names_it():
    request = Request(
        (
            Message("system", "Be kind"),
            Message("user", "Hello"),
            Message("assistant", "Hi"),
            Message("user", "Well?"),
        ),
        system="Be brief",
        temperature=0.5,
        seed=7,
        stop=("END",),
        max_tokens=9,
        schema=POINT,
        tools=(WEATHER, {"name": "get_time", "description": "The time"}),
        extra={"generationConfig": {"topK": 4}, "safetySettings": []},
    )
    _, server = await asked(Recorded(generated(text('{"x": 1}'))), request)
    assert server.body == {
        "contents": [
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"text": "Hi"}]},
            {"role": "user", "parts": [{"text": "Well?"}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be brief"}, {"text": "Be kind"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "get_weather",
                        "description": "The weather of a city",
                        "parametersJsonSchema": WEATHER["parameters"],
                    },
                    {"name": "get_time", "description": "The time"},
                ]
            }
        ],
        "generationConfig": {
            "temperature": 0.5,
            "seed": 7,
            "stopSequences": ["END"],
            "maxOutputTokens": 9,
            "responseMimeType": "application/json",
            "responseJsonSchema": POINT,
            "topK": 4,
        },
        "safetySettings": [],
    }


async def test_what_tools_answered_is_named_for_the_call_that_asked():
    calls = (ToolCall("a", "get_weather", '{"city": "Oslo"}'), ToolCall("b", "get_time", ""))
    turns = (
        Message("user", "Well?"),
        Message("assistant", "", tool_calls=calls),
        Message("tool", '{"sky": "blue"}', tool_call_id="a"),
        Message("tool", "noon", tool_call_id="b"),
    )
    _, server = await asked(Recorded(generated(text("Hi"))), Request(turns))
    assert server.body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}},
                {"functionCall": {"name": "get_time", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "get_weather", "response": {"sky": "blue"}}},
                {"functionResponse": {"name": "get_time", "response": {"result": "noon"}}},
            ],
        },
    ]
    with pytest.raises(RequestRefused, match="tool call z"):
        await asked(
            Recorded(generated(text("Hi"))), Request((Message("tool", "noon", tool_call_id="z"),))
        )


async def test_a_reply_is_read_whole_and_thoughts_are_only_counted():
    reply, _ = await asked(
        Recorded(generated(text("hm", thought=True), text("Hi "), text("there")))
    )
    assert reply.text == "Hi there"
    assert reply.usage == Usage(1, 4, 12, None, reasoning_tokens=5)
    assert (reply.finish, reply.model, reply.id) == (
        "stop",
        "gemini-2.5-flash",
        "mAitaLmkHPPlz7IPvtfUqQ4",
    )


async def test_usage_that_is_not_told_is_estimated():
    reply, _ = await asked(Recorded(generated(text("12345"), usageMetadata=None)))
    assert reply.usage == Usage(1, 2, 2, None, estimate=True)


@pytest.mark.parametrize(("told", "finish"), [("MAX_TOKENS", "length"), ("OTHER", "other")])
async def test_the_reason_why_it_ended_is_mapped(told, finish):
    assert (await asked(Recorded(generated(text("Hi"), reason=told))))[0].finish == finish


@pytest.mark.parametrize("hear", [None, [].append])
async def test_function_calls_are_passed_through(hear):
    parts = [
        {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}},
        {"functionCall": {"name": "get_time"}},
    ]
    answer = (
        flow(generated(parts[0], reason=None), generated(parts[1]))
        if hear
        else Recorded(generated(*parts))
    )
    reply, _ = await asked(answer, ask(tools=(WEATHER,)), hear=hear)
    assert reply.tool_calls == (
        ToolCall("call-0", "get_weather", '{"city": "Oslo"}'),
        ToolCall("call-1", "get_time", "{}"),
    )
    assert reply.finish == "tool_calls"


async def test_a_value_is_checked():
    reply, _ = await asked(Recorded(generated(text('{"x": 1}'))), ask(schema=POINT))
    assert reply.value == {"x": 1}
    with pytest.raises(ReplyInvalid, match=r"\$ must contain \['x'\] properties"):
        await asked(Recorded(generated(text("{}"))), ask(schema=POINT))


@pytest.mark.parametrize("hear", [None, [].append])
@pytest.mark.parametrize(
    "reason", ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST"]
)
async def test_what_a_filter_stopped_is_refused(reason, hear):
    body = {
        "candidates": [{"finishReason": reason, "index": 0, "safetyRatings": []}],
        "usageMetadata": USAGE,
    }
    with pytest.raises(Refused, match=reason):
        await asked(flow(STREAM[0], body) if hear else Recorded(body), hear=hear)


@pytest.mark.parametrize("hear", [None, [].append])
async def test_a_prompt_that_was_blocked_is_refused(hear):
    body = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 9},
    }
    with pytest.raises(Refused, match="PROHIBITED_CONTENT"):
        await asked(flow(body) if hear else Recorded(body), hear=hear)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"candidates": []},
        {"candidates": 7},
        generated(),
        generated({"text": 7}),
        generated("x"),
        [],
    ],
)
async def test_a_reply_without_its_shape_or_without_text_is_broken(body):
    with pytest.raises(ReplyBroken):
        await asked(Recorded(body))
    with pytest.raises(ReplyBroken):
        await asked(flow(body), hear=[].append)


async def test_a_stream_is_told_piece_by_piece():
    heard = []
    reply, server = await asked(flow(*STREAM), hear=heard.append)
    assert heard == ["Hel", "lo", "!"]
    assert (reply.text, reply.finish) == ("Hello!", "stop")
    assert reply.usage == Usage(1, 4, 12, None, reasoning_tokens=5)
    assert 0 < reply.first_token <= reply.seconds
    assert server.paths == ["/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"]


async def test_usage_after_the_end_of_the_text_still_counts():
    late = {"usageMetadata": USAGE | {"candidatesTokenCount": 70}}
    reply, _ = await asked(flow(*STREAM, late), hear=[].append)
    assert reply.usage.output_tokens == 75


async def test_a_stream_without_its_end_was_cut_off():
    with pytest.raises(ConnectionLost, match="before its end") as caught:
        await asked(flow(*STREAM[:2]), hear=[].append)
    assert "Hel" in caught.value.raw


async def test_an_error_in_a_stream_is_the_error():
    broken = {
        "error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    }
    with pytest.raises(ServerFault, match="overloaded"):
        await asked(flow(STREAM[0], broken), hear=[].append)


def quota(name):
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": name}],
    }


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"}
INVALID_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
EXCEEDED = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("status", "said", "details", "error"),
    [
        (
            429,
            EXCEEDED,
            [quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"), RETRY],
            Throttled,
        ),
        (
            429,
            EXCEEDED,
            [quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), RETRY],
            QuotaSpent,
        ),
        (400, "API key not valid. Please pass a valid API key.", [INVALID_KEY], KeyRefused),
        (
            400,
            (
                "The input token count (1050000) exceeds the maximum number of tokens allowed "
                "(1048576)."
            ),
            [],
            TooLong,
        ),
        (404, "models/gemini-9 is not found for API version v1beta", [], NoSuchModel),
        (400, "Invalid JSON payload received. Unknown name", [], RequestRefused),
        (503, "The model is overloaded. Please try again later.", [], Unavailable),
    ],
)
async def test_its_errors_are_known_by_their_shape(status, said, details, error):
    body = {"error": {"code": status, "message": said, "status": "X", "details": details}}
    with pytest.raises(error) as caught:
        await asked(Recorded(body, status=status))
    assert type(caught.value) is error
    if error is Throttled:
        assert (caught.value.retry_after, caught.value.limit) == (37.0, "requests")


async def test_a_stream_says_the_same_as_the_whole():
    async with (
        open_storm() as storm,
        closing(Gemini("gemini/storm", f"{storm.url}/v1beta", KEY)) as model,
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
            assert (whole.text, whole.value, whole.tool_calls, whole.finish, whole.usage) == (
                stream.text,
                stream.value,
                stream.tool_calls,
                stream.finish,
                stream.usage,
            )
            assert "".join(heard) == stream.text

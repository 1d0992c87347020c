"""Replies in the shapes that providers document this year, as our adapters read them."""

from dataclasses import dataclass
from typing import Any

import pytest

from abreast.core.errors import (
    CallFailed,
    NoSuchModel,
    Refused,
    ReplyBroken,
    RequestRefused,
    Unavailable,
)
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.gemini import Gemini
from abreast.models.providers.openai import OpenAI
from tests.models.serving import KEY, Recorded, ask, closing, events, serving

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}
WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}


@dataclass
class Shape:
    """An answer, and what is to be read in it: a reply's parts, or an error."""

    name: str
    adapter: Any
    answer: Recorded
    text: str = ""
    finish: str = "stop"
    tokens: tuple[int, int] | None = None  # sent and received, reasoning included
    call: tuple[str, str, str] | None = None
    value: Any = None
    error: type[CallFailed] | None = None
    says: str = ""


# --- chat completions


def chat(message, usage=None, finish="stop", **more):
    whole = {
        "id": "chatcmpl-CzX9",
        "object": "chat.completion",
        "created": 1768246307,
        "model": "some-model",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "logprobs": None}],
        "usage": usage or {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }
    whole["choices"][0]["finish_reason"] = finish
    return Recorded(whole | more)


def chunk(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more}


GPT_USAGE = {
    "prompt_tokens": 1213,
    "completion_tokens": 330,
    "total_tokens": 1543,
    "prompt_tokens_details": {"cached_tokens": 1152, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 320,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
TOOL_CALL = {
    "id": "call_8f3",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
}
CHAT = [
    Shape(
        "openai: a reasoning model",
        OpenAI,
        chat(
            {"content": "Hi", "refusal": None, "annotations": []},
            GPT_USAGE,
            service_tier="default",
            system_fingerprint=None,
        ),
        "Hi",
        tokens=(1213, 330),
    ),
    Shape(
        "openai: reasoning used up the bound",
        OpenAI,
        chat({"content": "", "refusal": None}, GPT_USAGE, "length"),
        error=ReplyBroken,
        says="max_tokens were used up",
    ),
    Shape(
        "openai: a stream with obfuscation and usage that is null until the end",
        OpenAI,
        events(
            chunk(
                {"role": "assistant", "content": "", "refusal": None}, obfuscation="x", usage=None
            ),
            chunk({"content": "Hi"}, obfuscation="yJ", usage=None),
            chunk({}, "stop", obfuscation="", usage=None),
            {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": GPT_USAGE},
            done=True,
        ),
        "Hi",
        tokens=(1213, 330),
    ),
    Shape(
        "openai: a tool call",
        OpenAI,
        chat({"content": None, "tool_calls": [TOOL_CALL]}, GPT_USAGE, "tool_calls"),
        finish="tool_calls",
        call=("call_8f3", "get_weather", '{"city":"Oslo"}'),
    ),
    Shape(
        "openai: an unsupported value",
        OpenAI,
        Recorded(
            {
                "error": {
                    "message": "Unsupported value: 'temperature' does not support 0 with this "
                    "model. Only the default (1) value is supported.",
                    "type": "invalid_request_error",
                    "param": "temperature",
                    "code": "unsupported_value",
                }
            },
            400,
        ),
        error=RequestRefused,
        says="'temperature' does not support 0",
    ),
    Shape(
        "azure: results of the content filter come first",
        OpenAI,
        events(
            {"id": "", "object": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
            chunk({"content": "Hi"}, content_filter_results={}),
            chunk({}, "stop"),
            done=True,
        ),
        "Hi",
    ),
    Shape(
        "deepseek: reasoning beside the content",
        OpenAI,
        chat(
            {"content": "Hi", "reasoning_content": "They greet me."},
            {
                "prompt_tokens": 100,
                "completion_tokens": 60,
                "total_tokens": 160,
                "prompt_tokens_details": {"cached_tokens": 64},
                "completion_tokens_details": {"reasoning_tokens": 50},
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
            },
        ),
        "Hi",
        tokens=(100, 60),
    ),
    Shape(
        "deepseek: a stream that reasons first, and keeps the connection with comments",
        OpenAI,
        Recorded(
            raw=b": keep-alive\n\n"
            + events(
                chunk({"role": "assistant", "content": None, "reasoning_content": "They"}),
                chunk({"content": None, "reasoning_content": " greet."}),
                chunk({"content": "Hi", "reasoning_content": None}),
                chunk(
                    {"content": "", "reasoning_content": None},
                    "stop",
                    usage={"prompt_tokens": 4, "completion_tokens": 7},
                ),
                done=True,
            ).raw,
            kind="text/event-stream",
        ),
        "Hi",
        tokens=(4, 7),
    ),
    Shape(
        "deepseek: no json_schema",
        OpenAI,
        Recorded(
            {
                "error": {
                    "message": "This response_format type is unavailable now",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": "invalid_request_error",
                }
            },
            400,
        ),
        error=RequestRefused,
        says="response_format type is unavailable",
    ),
    Shape(
        "deepseek: the system is out of resources",
        OpenAI,
        chat({"content": "Hi"}, finish="insufficient_system_resource"),
        "Hi",
        finish="other",
    ),
    Shape(
        "mistral: a content of thinking and text",
        OpenAI,
        chat(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                    {"type": "text", "text": "Hi"},
                ],
                "tool_calls": None,
                "prefix": False,
            }
        ),
        "Hi",
        tokens=(9, 3),
    ),
    Shape(
        "mistral: a stream of both, its usage in the chunk that ends it",
        OpenAI,
        events(
            chunk({"role": "assistant", "content": ""}),
            chunk(
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}
            ),
            chunk({"content": [{"type": "text", "text": "H"}]}),
            chunk({"content": "i"}),
            chunk({"content": ""}, "stop", usage={"prompt_tokens": 4, "completion_tokens": 7}),
            done=True,
        ),
        "Hi",
        tokens=(4, 7),
    ),
    Shape(
        "mistral: an unknown field",
        OpenAI,
        Recorded(
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "seed"],
                        "msg": "Extra inputs are not permitted",
                        "input": 7,
                    }
                ]
            },
            422,
        ),
        error=RequestRefused,
        says="seed",
    ),
    Shape(
        "mistral: an unknown field, as an error object",
        OpenAI,
        Recorded(
            {
                "object": "error",
                "message": {
                    "detail": [
                        {
                            "type": "extra_forbidden",
                            "loc": ["body", "messages", 0, "user", "name"],
                            "msg": "Extra inputs are not permitted",
                            "input": "",
                        }
                    ]
                },
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            },
            422,
        ),
        error=RequestRefused,
        says="Extra inputs are not permitted",
    ),
    Shape(
        "groq: times in the usage, and an id of its own",
        OpenAI,
        chat(
            {"content": "Hi", "reasoning": "Hm."},
            {
                "queue_time": 0.05,
                "prompt_tokens": 9,
                "prompt_time": 0.001,
                "completion_tokens": 30,
                "completion_time": 0.2,
                "total_tokens": 39,
                "total_time": 0.25,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            usage_breakdown=None,
            x_groq={"id": "req_01", "seed": 1},
        ),
        "Hi",
        tokens=(9, 30),
    ),
    Shape(
        "groq: JSON that the model got wrong",
        OpenAI,
        Recorded(
            {
                "error": {
                    "message": "Failed to generate JSON. Please adjust your prompt. See "
                    "'failed_generation' for more details.",
                    "type": "invalid_request_error",
                    "code": "json_validate_failed",
                    "failed_generation": "{",
                }
            },
            400,
        ),
        error=RequestRefused,
        says="Failed to generate JSON",
    ),
    Shape(
        "xai: reasoning comes on top of the completion",
        OpenAI,
        chat(
            {"content": "Hi", "reasoning_content": "Hm.", "refusal": None},
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "prompt_tokens_details": {"text_tokens": 32, "cached_tokens": 6},
                "completion_tokens_details": {"reasoning_tokens": 94},
                "num_sources_used": 0,
            },
        ),
        "Hi",
        tokens=(32, 103),
    ),
    Shape(
        "xai: the error is a text",
        OpenAI,
        Recorded(
            {
                "code": "Client specified an invalid argument",
                "error": "Model grok-4.5 does not support parameter presencePenalty.",
            },
            400,
        ),
        error=RequestRefused,
        says="presencePenalty",
    ),
    Shape(
        "openrouter: comments while it waits, reasoning in details",
        OpenAI,
        Recorded(
            raw=b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n"
            + events(
                chunk(
                    {
                        "role": "assistant",
                        "content": "",
                        "reasoning": "Hm",
                        "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}],
                    },
                    provider="Storm",
                ),
                chunk({"role": "assistant", "content": "Hi"}, native_finish_reason=None),
                chunk(
                    {"role": "assistant", "content": ""},
                    "stop",
                    usage={"prompt_tokens": 4, "completion_tokens": 7, "cost": 0.00014},
                ),
                done=True,
            ).raw,
            kind="text/event-stream",
        ),
        "Hi",
        tokens=(4, 7),
    ),
    Shape(
        "openrouter: an error in the middle of a stream",
        OpenAI,
        events(
            chunk({"content": "Hi"}),
            chunk(
                {"content": ""},
                "error",
                error={"code": 502, "message": "Provider disconnected unexpectedly"},
            ),
            done=True,
        ),
        error=Unavailable,
        says="Provider disconnected",
    ),
    Shape(
        "openrouter: no endpoint has the parameters",
        OpenAI,
        Recorded(
            {
                "error": {
                    "message": "No endpoints found that can handle the requested parameters.",
                    "code": 404,
                }
            },
            404,
        ),
        error=RequestRefused,
        says="requested parameters",
    ),
    Shape(
        "vllm: validation errors as a text",
        OpenAI,
        Recorded(
            {
                "object": "error",
                "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': "
                "'Extra inputs are not permitted', 'input': {'include_usage': True}}]",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
            400,
        ),
        error=RequestRefused,
        says="stream_options",
    ),
]

# --- messages


def message(*blocks, stop="end_turn", usage=None, **more):
    whole = {
        "id": "msg_013Zva2C",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-7",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage or CLAUDE_USAGE,
    }
    return Recorded(whole | more)


CLAUDE_USAGE = {
    "input_tokens": 21,
    "cache_creation_input_tokens": 188,
    "cache_read_input_tokens": 2048,
    "cache_creation": {"ephemeral_5m_input_tokens": 188, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 503,
    "output_tokens_details": {"thinking_tokens": 480},
    "server_tool_use": None,
    "service_tier": "standard",
    "inference_geo": "global",
}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAhIM"}
HI = {"type": "text", "text": "Hi", "citations": None}


def thinking_stream(*last, stop="end_turn"):
    opened = {"type": "thinking", "thinking": "", "signature": ""}
    documents = [
        {"type": "message_start", "message": message(stop=None).body},
        {"type": "content_block_start", "index": 0, "content_block": opened},
        {"type": "ping"},
        *(
            {"type": "content_block_delta", "index": 0, "delta": delta}
            for delta in (
                {"type": "thinking_delta", "thinking": "Hm."},
                {"type": "signature_delta", "signature": "EqQBCgIYAhIM"},
            )
        ),
        {"type": "content_block_stop", "index": 0},
        *last,
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": CLAUDE_USAGE,
            "context_management": {"applied_edits": []},
        },
        {"type": "message_stop"},
    ]
    return events(*documents, named=True)


MESSAGES = [
    Shape(
        "anthropic: thinking without its text, and every way to count",
        Anthropic,
        message(THOUGHT, HI, context_management=None, container=None),
        "Hi",
        tokens=(21 + 188 + 2048, 503),
    ),
    Shape(
        "anthropic: redacted thinking",
        Anthropic,
        message({"type": "redacted_thinking", "data": "EmwKAhgBEgy3"}, HI),
        "Hi",
    ),
    Shape(
        "anthropic: a stream of thinking, its signature, and text",
        Anthropic,
        thinking_stream(
            {
                "type": "content_block_start",
                "index": 1,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "text_delta", "text": "Hi"},
            },
            {"type": "content_block_stop", "index": 1},
        ),
        "Hi",
        tokens=(21 + 188 + 2048, 503),
    ),
    Shape(
        "anthropic: thinking used up the bound",
        Anthropic,
        message(THOUGHT, stop="max_tokens"),
        error=ReplyBroken,
        says="max_tokens were used up",
    ),
    Shape(
        "anthropic: a stream in which thinking used up the bound",
        Anthropic,
        thinking_stream(stop="max_tokens"),
        error=ReplyBroken,
        says="max_tokens were used up",
    ),
    Shape(
        "anthropic: a tool use with its caller, after thinking",
        Anthropic,
        message(
            THOUGHT,
            {
                "type": "tool_use",
                "id": "toolu_01",
                "name": "get_weather",
                "input": {"city": "Oslo"},
                "caller": {"type": "direct"},
            },
            stop="tool_use",
        ),
        finish="tool_calls",
        call=("toolu_01", "get_weather", '{"city": "Oslo"}'),
    ),
    Shape(
        "anthropic: native structured output",
        Anthropic,
        message(THOUGHT, {"type": "text", "text": '{"colour":"red"}'}),
        '{"colour":"red"}',
        value={"colour": "red"},
    ),
    Shape(
        "anthropic: a refusal with its category",
        Anthropic,
        message(
            stop="refusal",
            stop_details={"type": "refusal", "category": "cyber", "explanation": "Not this."},
        ),
        error=Refused,
        says="Not this.",
    ),
    Shape(
        "anthropic: the context is full",
        Anthropic,
        message(HI, stop="model_context_window_exceeded"),
        "Hi",
        finish="length",
    ),
    Shape(
        "anthropic: a deprecated parameter",
        Anthropic,
        Recorded(
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "`temperature` is deprecated for this model.",
                },
                "request_id": "req_011C",
            },
            400,
        ),
        error=RequestRefused,
        says="`temperature` is deprecated",
    ),
    Shape(
        "anthropic: overloaded in the middle of a stream",
        Anthropic,
        events(
            {"type": "message_start", "message": message(stop=None).body},
            {
                "type": "error",
                "error": {"details": None, "type": "overloaded_error", "message": "Overloaded"},
                "request_id": "req_011C",
            },
            named=True,
        ),
        error=Unavailable,
        says="Overloaded",
    ),
]

# --- generateContent


def generated(*parts, finish="STOP", content=True, **more):
    candidate = {"finishReason": finish, "index": 0}
    if content:
        candidate["content"] = {"role": "model"} | ({"parts": list(parts)} if parts else {})
    return {
        "candidates": [candidate],
        "usageMetadata": GEMINI_USAGE,
        "modelVersion": "gemini-3-pro-preview",
        "responseId": "XvAbafvH",
    } | more


GEMINI_USAGE = {
    "promptTokenCount": 2152,
    "candidatesTokenCount": 18,
    "totalTokenCount": 3370,
    "cachedContentTokenCount": 2027,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 2152}],
    "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 2027}],
    "thoughtsTokenCount": 1200,
}
SIGNED = {"thoughtSignature": "EpwCCpkCAb4"}
GENERATED = [
    Shape(
        "gemini: a text with its signature",
        Gemini,
        Recorded(generated({"text": "Hi", **SIGNED})),
        "Hi",
        tokens=(2152, 1218),
    ),
    Shape(
        "gemini: a stream that ends with an empty text and a signature",
        Gemini,
        events(
            {
                "candidates": [
                    {
                        "content": {
                            "parts": [{"text": "Hm", "thought": True}],
                            "role": "model",
                        },
                        "index": 0,
                    }
                ],
                "usageMetadata": {"promptTokenCount": 2152, "totalTokenCount": 2152},
            },
            {
                "candidates": [
                    {"content": {"parts": [{"text": "Hi"}], "role": "model"}, "index": 0}
                ],
                "usageMetadata": {"promptTokenCount": 2152, "thoughtsTokenCount": 1200},
            },
            generated({"text": "", **SIGNED}),
        ),
        "Hi",
        tokens=(2152, 1218),
    ),
    Shape(
        "gemini: thinking used up the bound",
        Gemini,
        Recorded(generated(finish="MAX_TOKENS")),
        error=ReplyBroken,
        says="max_tokens were used up",
    ),
    Shape(
        "gemini: a stream in which thinking used up the bound",
        Gemini,
        events(generated(finish="MAX_TOKENS", content=False)),
        error=ReplyBroken,
        says="max_tokens were used up",
    ),
    Shape(
        "gemini: a function call with its id and signature",
        Gemini,
        Recorded(
            generated(
                {
                    "functionCall": {"name": "get_weather", "args": {"city": "Oslo"}, "id": "x1"},
                    **SIGNED,
                }
            )
        ),
        finish="tool_calls",
        call=("x1", "get_weather", '{"city": "Oslo"}'),
    ),
    Shape(
        "gemini: a call that came out wrong",
        Gemini,
        Recorded(
            generated(
                finish="MALFORMED_FUNCTION_CALL", content=False, finishMessage="Malformed call"
            )
        ),
        error=ReplyBroken,
    ),
    Shape(
        "gemini: an unknown name",
        Gemini,
        Recorded(
            {
                "error": {
                    "code": 400,
                    "message": 'Invalid JSON payload received. Unknown name "seeds" at '
                    "'generation_config': Cannot find field.",
                    "status": "INVALID_ARGUMENT",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.BadRequest",
                            "fieldViolations": [{"field": "generation_config"}],
                        }
                    ],
                }
            },
            400,
        ),
        error=RequestRefused,
        says="Unknown name",
    ),
    Shape(
        "gemini: an error in a list",
        Gemini,
        Recorded(
            [{"error": {"code": 404, "message": "no such model", "status": "NOT_FOUND"}}], 404
        ),
        error=NoSuchModel,
        says="no such model",
    ),
]

SHAPES = [*CHAT, *MESSAGES, *GENERATED]


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
async def test_a_shape_of_this_year_is_read(shape):
    streams = shape.answer.kind == "text/event-stream"
    heard = []
    question = ask(schema=SCHEMA if shape.value else None, tools=(WEATHER,) if shape.call else ())
    async with (
        serving(shape.answer) as server,
        closing(shape.adapter("p/m", f"{server.url}/v1", KEY)) as model,
    ):
        call = model.complete(question, heard.append if streams else None)
        if shape.error is not None:
            with pytest.raises(CallFailed) as caught:
                await call
            assert type(caught.value) is shape.error
            assert shape.says in str(caught.value)
            return
        reply = await call
    assert (reply.text, reply.finish, reply.value) == (shape.text, shape.finish, shape.value)
    assert "".join(heard) == (shape.text if streams else "")
    calls = [(one.id, one.name, one.arguments) for one in reply.tool_calls]
    assert calls == ([shape.call] if shape.call else [])
    if shape.tokens:
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == shape.tokens
        assert not reply.usage.estimate

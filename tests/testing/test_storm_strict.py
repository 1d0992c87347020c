"""Strict profiles: each refuses what its provider refuses, and replies as its provider does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import asynccontextmanager

import aiohttp
import pytest

from abreast.testing.storm import BilledTokens, open_storm, start_process
from abreast.testing.storm.settings import STRICT
from abreast.testing.storm.strict.profiles import PROFILES

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "size": {"type": "integer"}},
    "required": ["colour", "size"],
    "additionalProperties": False,
}
VALUE = {"colour": "red", "size": 0}
OPEN_SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}}
LONG = "word " * 1100
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather", "parameters": WEATHER},
}
CHAT = (
    "openai-reasoning",
    "deepseek",
    "mistral",
    "groq",
    "xai",
    "openrouter",
    "vllm-old",
)


def body_of(profile, prompt="Hello"):
    """The least that a profile accepts."""
    if profile == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": prompt}]}]}
    if profile == "openai-responses":
        return {"model": "m", "input": prompt}
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    return body | ({"max_tokens": 4096} if profile.startswith("anthropic") else {})


class Client:
    def __init__(self, storm, session, profile):
        self.storm = storm
        self._session = session
        path = PROFILES[profile][0]
        self._path = f"{path}/m:generateContent" if profile == "gemini" else path

    async def post(self, body, path=None):
        async with self._session.post(path or self._path, json=body) as reply:
            return reply.status, await reply.json(content_type=None)

    async def ok(self, body):
        status, reply = await self.post(body)
        assert status == 200, reply
        return reply

    async def refused(self, body):
        """The status, and the error as one text."""
        status, reply = await self.post(body)
        return status, json.dumps(reply, ensure_ascii=False)

    async def stream(self, body, path=None):
        """The data of a stream's events."""
        async with self._session.post(path or self._path, json=body) as reply:
            assert reply.status == 200, await reply.text()
            lines = (await reply.text()).splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(each) for each in data if each != "[DONE]"]


@asynccontextmanager
async def strict(profile, **settings):
    async with (
        open_storm(strict=profile, **settings) as storm,
        aiohttp.ClientSession(storm.url) as session,
    ):
        yield Client(storm, session, profile)


def test_the_setting_names_every_profile():
    assert ("none", *PROFILES) == STRICT


@pytest.mark.parametrize("profile", PROFILES)
async def test_the_least_request_gets_a_text_and_other_providers_paths_are_not_there(profile):
    async with strict(profile) as client:
        reply = await client.ok(body_of(profile))
        assert text_of(profile, reply)
        others = {path for path, _ in PROFILES.values()} - {PROFILES[profile][0], "/v1beta/models"}
        for path in others:
            assert (await client.post({}, path))[0] == 404
        assert client.storm.refusals() == {}


def text_of(profile, reply):
    if profile == "gemini":
        parts = reply["candidates"][0]["content"].get("parts", ())
        return "".join(part.get("text", "") for part in parts if not part.get("thought"))
    if profile == "openai-responses":
        messages = [item for item in reply["output"] if item["type"] == "message"]
        return "".join(part["text"] for item in messages for part in item["content"])
    if profile.startswith("anthropic"):
        return "".join(block.get("text", "") for block in reply["content"])
    return reply["choices"][0]["message"]["content"]


# --- refusals

FORM = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}}
OPEN_FORM = {
    "type": "json_schema",
    "json_schema": {"name": "reply", "strict": True, "schema": OPEN_SCHEMA},
}
FORCED_CHAT = {"type": "function", "function": {"name": "weather"}}
CLAUDE_TOOL = {"name": "weather", "description": "The weather", "input_schema": WEATHER}
REFUSED = [
    ("openai-reasoning", {"temperature": 0}, 400, "temperature", "Only the default (1) value"),
    ("openai-reasoning", {"top_p": 0.5}, 400, "top_p", "'top_p' is not supported with this model"),
    ("openai-reasoning", {"presence_penalty": 1}, 400, "presence_penalty", "unsupported_parameter"),
    ("openai-reasoning", {"stop": ["x"]}, 400, "stop", "'stop' is not supported"),
    ("openai-reasoning", {"max_tokens": 9}, 400, "max_tokens", "Use 'max_completion_tokens'"),
    ("openai-reasoning", {"guided_json": {}}, 400, "guided_json", "Unknown parameter"),
    ("openai-reasoning", {"reasoning_effort": "huge"}, 400, "reasoning_effort", "Supported values"),
    (
        "openai-reasoning",
        {"response_format": OPEN_FORM},
        400,
        "response_format",
        "In context=(), 'additionalProperties' is required",
    ),
    (
        "openai-reasoning",
        {"response_format": {"type": "json_object"}},
        400,
        "response_format",
        "json",
    ),
    ("openai-responses", {"temperature": 0}, 400, "temperature", "not supported with this model"),
    ("openai-responses", {"messages": []}, 400, "messages", "has moved to 'input'"),
    ("openai-responses", {"max_tokens": 99}, 400, "max_tokens", "moved to 'max_output_tokens'"),
    ("openai-responses", {"seed": 1}, 400, "seed", "Unknown parameter: 'seed'."),
    ("openai-responses", {"max_output_tokens": 5}, 400, "max_output_tokens", "minimum value"),
    ("openai-responses", {"tools": [CHAT_TOOL]}, 400, "tools", "'tools[0].name'"),
    (
        "openai-responses",
        {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        400,
        "text.format",
        "text.format.name",
    ),
    (
        "openai-responses",
        {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]},
        400,
        "input",
        "Supported values are: 'output_text' and 'refusal'",
    ),
    ("anthropic-new", {"temperature": 0.5}, 400, "temperature", "`temperature` is deprecated"),
    ("anthropic-new", {"top_p": 0.5}, 400, "top_p", "`top_p` is deprecated for this model"),
    ("anthropic-new", {"top_k": 5}, 400, "top_k", "`top_k` is deprecated for this model"),
    ("anthropic-new", {"seed": 5}, 400, "seed", "seed: Extra inputs are not permitted"),
    (
        "anthropic-new",
        {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "any"}},
        400,
        "tool_choice",
        "tool_choice forces tool use is not compatible with this model",
    ),
    (
        "anthropic-new",
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        400,
        "thinking",
        "thinking.type.adaptive",
    ),
    (
        "anthropic-new",
        {"output_config": {"format": {"type": "json_schema", "schema": OPEN_SCHEMA}}},
        400,
        "output_config.format.schema",
        "'additionalProperties' must be explicitly set to false",
    ),
    (
        "anthropic-classic",
        {"output_config": {"effort": "low"}},
        400,
        "output_config",
        "output_config: Extra inputs are not permitted",
    ),
    (
        "anthropic-classic",
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [CLAUDE_TOOL],
            "tool_choice": {"type": "tool", "name": "weather"},
        },
        400,
        "tool_choice",
        "Thinking may not be enabled when tool_choice forces tool use",
    ),
    ("gemini", {"seed": 1}, 400, "seed", "Invalid JSON payload received. Unknown name"),
    ("gemini", {"generationConfig": {"n": 1}}, 400, "n", "at 'generation_config'"),
    (
        "gemini",
        {"generationConfig": {"responseSchema": SCHEMA}},
        400,
        "additionalProperties",
        "generation_config.response_schema",
    ),
    ("deepseek", {"response_format": FORM}, 400, "response_format", "type is unavailable now"),
    ("deepseek", {"response_format": {"type": "json_object"}}, 400, "response_format", "'json'"),
    (
        "deepseek",
        {"tools": [CHAT_TOOL], "tool_choice": FORCED_CHAT},
        400,
        "tool_choice",
        "Thinking mode does not support this tool_choice",
    ),
    ("mistral", {"seed": 1}, 422, "seed", '"loc": ["body", "seed"]'),
    ("mistral", {"stream_options": {}}, 422, "stream_options", "extra_forbidden"),
    ("mistral", {"max_completion_tokens": 9}, 422, "max_completion_tokens", "not permitted"),
    ("groq", {"response_format": FORM}, 400, "response_format", "response format `json_schema`"),
    ("groq", {"guided_json": {}}, 400, "guided_json", "property 'guided_json' is unsupported"),
    ("xai", {"presence_penalty": 0}, 400, "presence_penalty", "parameter presencePenalty"),
    ("xai", {"stop": ["x"]}, 400, "stop", "does not support parameter stop"),
    (
        "openrouter",
        {"seed": 1, "provider": {"require_parameters": True}},
        404,
        "seed",
        "No endpoints found that can handle the requested parameters",
    ),
    ("vllm-old", {"stream_options": {}}, 400, "stream_options", "('body', 'stream_options')"),
    ("vllm-old", {"response_format": FORM}, 400, "response_format", "'text' or 'json_object'"),
    ("vllm-old", {"max_completion_tokens": 9}, 400, "max_completion_tokens", "extra_forbidden"),
    ("vllm-old", {"tools": [CHAT_TOOL]}, 400, "tool_choice", "--enable-auto-tool-choice"),
]


@pytest.mark.parametrize(
    ("profile", "more", "status", "parameter", "said"),
    REFUSED,
    ids=[f"{row[0]}-{row[3]}-{at}" for at, row in enumerate(REFUSED)],
)
async def test_a_refusal_has_the_providers_status_and_words_and_is_counted_once(
    profile, more, status, parameter, said
):
    async with strict(profile) as client:
        assert await client.ok(body_of(profile))
        found, error = await client.refused(body_of(profile) | more)
        assert (found, said in error) == (status, True), error
        (lane, model, name), times = next(iter(client.storm.refusals().items()))
        assert (model, name, times) == ("m", parameter, 1)
        assert lane == client.storm.log[0].lane
        assert client.storm.billed()["m"].requests == 1  # a refusal costs nothing
        assert client.storm.stats().faults == 1


ACCEPTED = [
    ("openai-reasoning", {"temperature": 1, "max_completion_tokens": 9000, "seed": 3}),
    ("anthropic-classic", {"temperature": 0.5, "top_k": 3}),
    ("anthropic-new", {"output_config": {"effort": "low"}, "thinking": {"type": "adaptive"}}),
    ("deepseek", {"temperature": 0, "seed": 1, "anything": True, "max_tokens": 9000}),
    ("mistral", {"random_seed": 1, "temperature": 0, "max_tokens": 9, "stop": ["x"]}),
    ("groq", {"temperature": 0, "seed": 1, "stop": ["x"]}),
    ("xai", {"temperature": 0, "seed": 1}),
    ("openrouter", {"temperature": 0, "seed": 1}),
    ("vllm-old", {"temperature": 0, "seed": 1, "max_tokens": 9}),
    ("gemini", {"generationConfig": {"temperature": 0, "seed": 1, "topK": 3}}),
    ("openai-responses", {"instructions": "Be brief.", "store": False, "include": []}),
]


@pytest.mark.parametrize(("profile", "more"), ACCEPTED)
async def test_what_the_provider_accepts_is_accepted(profile, more):
    async with strict(profile) as client:
        await client.ok(body_of(profile) | more)


# --- schemas

IN_WORDS = f"Answer with JSON alone, by this schema: {json.dumps(SCHEMA)}"
NATIVE = {
    "openai-reasoning": {"response_format": FORM},
    "openai-responses": {
        "text": {"format": {"type": "json_schema", "name": "reply", "schema": SCHEMA}}
    },
    "anthropic-new": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "gemini": {
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
        }
    },
    "mistral": {"response_format": FORM},
    "openrouter": {"response_format": FORM},
    "xai": {"response_format": FORM},
    "vllm-old": {"guided_json": SCHEMA},
}


@pytest.mark.parametrize(("profile", "more"), NATIVE.items())
async def test_a_native_schema_is_obeyed(profile, more):
    async with strict(profile) as client:
        reply = await client.ok(body_of(profile) | more)
        assert json.loads(text_of(profile, reply)) == VALUE


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_schema_in_the_prompt_is_obeyed(profile):
    async with strict(profile) as client:
        reply = await client.ok(body_of(profile, IN_WORDS))
        assert json.loads(text_of(profile, reply)) == VALUE


@pytest.mark.parametrize("profile", ["deepseek", "groq", "vllm-old", "openai-reasoning"])
async def test_json_mode_with_the_schema_in_the_prompt_is_obeyed(profile):
    async with strict(profile) as client:
        more = {"response_format": {"type": "json_object"}}
        reply = await client.ok(body_of(profile, IN_WORDS) | more)
        assert json.loads(text_of(profile, reply)) == VALUE


async def test_a_tool_for_the_final_reply_is_called_without_being_forced():
    tool = {"name": "final", "description": "Give the final reply by this.", "input_schema": SCHEMA}
    async with strict("anthropic-new") as client:
        reply = await client.ok(body_of("anthropic-new") | {"tools": [tool]})
        assert reply["content"][0]["input"] == VALUE


async def test_a_judge_gets_a_yes():
    async with strict("mistral") as client:
        reply = await client.ok(body_of("mistral", "Is it good? Say yes or no."))
        assert text_of("mistral", reply) == "yes"


# --- reasoning


@pytest.mark.parametrize(
    ("profile", "more"),
    [
        ("openai-reasoning", {"max_completion_tokens": 200}),
        ("openai-responses", {"max_output_tokens": 200}),
        ("anthropic-new", {"thinking": {"type": "adaptive"}, "max_tokens": 200}),
        ("gemini", {"generationConfig": {"maxOutputTokens": 200}}),
        ("deepseek", {"max_tokens": 200}),
    ],
)
async def test_reasoning_uses_up_a_small_bound_and_the_reply_is_empty(profile, more):
    async with strict(profile) as client:
        reply = await client.ok(body_of(profile) | more)
        assert text_of(profile, reply) == ""
        assert ended_by_length(profile, reply)
        billed = client.storm.billed()["m"]
        assert (billed.output, billed.reasoning) == (200, 200)
        stream, path = {"stream": True}, None
        if profile == "gemini":
            stream, path = {}, "/v1beta/models/m:streamGenerateContent"
        events = await client.stream(body_of(profile) | more | stream, path)
        assert "length" in json.dumps(events) or "max_" in json.dumps(events).lower()


def ended_by_length(profile, reply):
    if profile == "gemini":
        return reply["candidates"][0]["finishReason"] == "MAX_TOKENS"
    if profile == "openai-responses":
        why = reply["incomplete_details"] == {"reason": "max_output_tokens"}
        return reply["status"] == "incomplete" and why
    if profile.startswith("anthropic"):
        return reply["stop_reason"] == "max_tokens"
    return reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("profile", "more", "count"),
    [
        ("openai-reasoning", {"reasoning_effort": "low"}, 128),
        ("openai-reasoning", {"reasoning_effort": "none"}, 0),
        ("openai-responses", {"reasoning": {"effort": "low"}}, 128),
        (
            "anthropic-new",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            128,
        ),
        ("anthropic-new", {}, 0),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}, 128),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, 0),
        ("deepseek", {"thinking": {"type": "disabled"}}, 0),
    ],
)
async def test_effort_sets_the_reasoning(profile, more, count):
    async with strict(profile) as client:
        await client.ok(body_of(profile) | more)
        assert client.storm.billed()["m"].reasoning == count


async def test_each_provider_counts_reasoning_in_its_own_words():
    async def usage(profile, name="usage", more=None):
        async with strict(profile, output_min=10, output_max=10) as client:
            reply = await client.ok(body_of(profile) | (more or {}))
            billed = client.storm.billed()["m"]
            return reply[name], billed.output, billed.reasoning

    chat, output, reasoning = await usage("openai-reasoning")
    assert (chat["completion_tokens"], output, reasoning) == (1210, 1210, 1200)
    assert chat["completion_tokens_details"]["reasoning_tokens"] == 1200
    made, *_ = await usage("openai-responses")
    assert made["output_tokens"] == 1210
    assert made["output_tokens_details"] == {"reasoning_tokens": 1200}
    claude, *_ = await usage(
        "anthropic-new", more={"thinking": {"type": "adaptive"}, "max_tokens": 9000}
    )
    assert claude["output_tokens"] == 4010
    assert claude["output_tokens_details"] == {"thinking_tokens": 4000}
    gemini, *_ = await usage("gemini", "usageMetadata")
    assert (gemini["candidatesTokenCount"], gemini["thoughtsTokenCount"]) == (10, 1200)
    grok, output, _ = await usage("xai")
    assert (grok["completion_tokens"], output) == (10, 138)
    assert grok["total_tokens"] == grok["prompt_tokens"] + 138


# --- caches


@pytest.mark.parametrize("profile", ["openai-reasoning", "openai-responses", "gemini", "deepseek"])
async def test_a_long_prefix_is_cached_the_second_time(profile):
    async with strict(profile) as client:
        first = await client.ok(body_of(profile, LONG + "one"))
        second = await client.ok(body_of(profile, LONG + "two"))
        assert cached_in(first) == 0
        assert 1024 <= cached_in(second) == client.storm.billed()["m"].cached


def cached_in(reply):
    usage = reply.get("usage") or reply["usageMetadata"]
    if "prompt_cache_hit_tokens" in usage:
        assert (
            usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"]
            == usage["prompt_tokens"]
        )
        return usage["prompt_cache_hit_tokens"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    return details.get("cached_tokens", usage.get("cachedContentTokenCount", 0))


async def test_claude_caches_what_is_marked_and_bills_writes_and_reads():
    system = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]
    async with strict("anthropic-new", output_min=8, output_max=8) as client:
        first = await client.ok(body_of("anthropic-new", "Hell") | {"system": system})
        second = await client.ok(body_of("anthropic-new", "Hall") | {"system": system})
        await client.ok(body_of("anthropic-new", "Hill") | {"system": LONG})
        written, read = first["usage"], second["usage"]
        assert (written["cache_creation_input_tokens"], written["cache_read_input_tokens"]) == (
            1375,
            0,
        )
        assert (read["cache_creation_input_tokens"], read["cache_read_input_tokens"]) == (0, 1375)
        assert read["input_tokens"] == 1
        assert client.storm.billed() == {"m": BilledTokens(3, 3 * 1376, 1375, 1375, 24, 0)}


# --- tool loops


async def test_claudes_thinking_comes_back_unchanged_or_is_refused():
    tool = {"name": "weather", "description": "The weather", "input_schema": WEATHER}
    base = {
        "model": "m",
        "max_tokens": 9000,
        "tools": [tool],
        "thinking": {"type": "adaptive", "display": "summarized"},
    }
    asked = {"role": "user", "content": "Please call weather."}
    async with strict("anthropic-new") as client:
        reply = await client.ok(base | {"messages": [asked]})
        thinking, use = reply["content"]
        assert (thinking["type"], use["type"]) == ("thinking", "tool_use")
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "Sun"}

        def loop(*blocks):
            return base | {
                "messages": [
                    asked,
                    {"role": "assistant", "content": list(blocks)},
                    {"role": "user", "content": [result]},
                ]
            }

        done = await client.ok(loop(thinking, use))
        assert text_of("anthropic-new", done)
        assert "Expected `thinking`" in (await client.refused(loop(use)))[1]
        changed = thinking | {"thinking": "other"}
        assert "cannot be modified" in (await client.refused(loop(changed, use)))[1]
        forged = thinking | {"signature": "x"}
        assert "Invalid `signature`" in (await client.refused(loop(forged, use)))[1]
        assert client.storm.refusals() == {("anthropic", "m", "thinking"): 3}


async def test_a_stream_of_claudes_thinking_has_its_signature():
    body = body_of("anthropic-new") | {"thinking": {"type": "adaptive"}, "max_tokens": 9000}
    async with strict("anthropic-new") as client:
        events = await client.stream(body | {"stream": True})
        deltas = [each["delta"]["type"] for each in events if each["type"] == "content_block_delta"]
        assert deltas[0] == "signature_delta"  # the text is left out unless it is asked for
        assert deltas[1] == "text_delta"
        assert [each.get("index") for each in events if "start" in each["type"]] == [None, 0, 1]
        assert events[-2]["usage"]["output_tokens_details"]["thinking_tokens"] == 4000


async def test_geminis_function_call_comes_back_with_its_signature_or_is_refused():
    tools = [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": WEATHER}]}]
    asked = {"role": "user", "parts": [{"text": "Please call weather."}]}
    async with strict("gemini") as client:
        reply = await client.ok({"contents": [asked], "tools": tools})
        part = reply["candidates"][0]["content"]["parts"][0]

        def loop(part):
            made = {"name": "weather", "response": {"result": "Sun"}}
            turns = [asked, {"role": "model", "parts": [part]}]
            turns.append({"role": "user", "parts": [{"functionResponse": made}]})
            return {"contents": turns, "tools": tools}

        assert text_of("gemini", await client.ok(loop(part)))
        bare = {"functionCall": part["functionCall"]}
        assert "missing a thought_signature" in (await client.refused(loop(bare)))[1]
        wrong = part | {"thoughtSignature": "x"}
        assert "Corrupted" in (await client.refused(loop(wrong)))[1]
        later = {"role": "user", "parts": [{"text": "And tomorrow?"}]}
        body = loop(bare)
        await client.ok(body | {"contents": [*body["contents"], later]})  # a turn that is over


async def test_deepseeks_reasoning_comes_back_with_the_calls_or_is_refused():
    asked = {"role": "user", "content": "Please call weather."}
    async with strict("deepseek") as client:
        base = {"model": "m", "tools": [CHAT_TOOL]}
        message = (await client.ok(base | {"messages": [asked]}))["choices"][0]["message"]
        call = message["tool_calls"][0]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "Sun"}
        whole = await client.ok(base | {"messages": [asked, message, result]})
        assert text_of("deepseek", whole)
        del message["reasoning_content"]
        error = await client.refused(base | {"messages": [asked, message, result]})
        assert "must be passed back" in error[1]


async def test_responses_need_the_whole_history():
    tool = {"type": "function", "name": "weather", "parameters": WEATHER}
    base = {
        "model": "m",
        "tools": [tool],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    asked = {"role": "user", "content": "Please call weather."}
    async with strict("openai-responses") as client:
        reply = await client.ok(base | {"input": [asked]})
        reasoning, call = reply["output"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sun"}

        async def loop(*items):
            return await client.refused(base | {"input": [asked, *items]})

        assert text_of(
            "openai-responses",
            await client.ok(base | {"input": [asked, reasoning, call, result]}),
        )
        assert "without its required 'reasoning' item" in (await loop(call, result))[1]
        assert "without its required following item" in (await loop(reasoning))[1]
        assert "No tool output found" in (await loop(reasoning, call))[1]
        assert "No tool call found" in (await loop(result))[1]
        del reasoning["encrypted_content"]
        status, error = await loop(reasoning, call, result)
        assert (status, "Items are not persisted" in error) == (404, True)


async def test_a_stream_of_responses_has_the_same_items_as_the_whole():
    async with strict("openai-responses") as client:
        body = body_of("openai-responses")
        whole = await client.ok(body)
        events = await client.stream(body | {"stream": True})
        kinds = [each["type"] for each in events]
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        assert [each["sequence_number"] for each in events] == list(range(len(events)))
        deltas = [each["delta"] for each in events if each["type"].endswith("output_text.delta")]
        assert "".join(deltas) == text_of("openai-responses", whole)
        assert events[-1]["response"]["usage"] == whole["usage"]


async def test_mistrals_ids_are_its_own_and_its_streams_have_usage():
    asked = {"role": "user", "content": "Please call weather."}
    async with strict("mistral") as client:
        base = {"model": "m", "tools": [CHAT_TOOL]}
        message = (await client.ok(base | {"messages": [asked]}))["choices"][0]["message"]
        del message["refusal"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "Sun"}
        await client.ok(base | {"messages": [asked, message, result]})
        message["tool_calls"][0]["id"] = "call_1"
        error = await client.refused(base | {"messages": [asked, message, result]})
        assert "with a length of 9" in error[1]
        assert (await client.stream(body_of("mistral") | {"stream": True}))[-1]["usage"]


@pytest.mark.parametrize("profile", CHAT)
async def test_a_chat_streams_what_it_would_have_sent_whole(profile):
    async with strict(profile) as client:
        whole = await client.ok(body_of(profile))
        chunks = await client.stream(body_of(profile) | {"stream": True})
        deltas = [each["choices"][0]["delta"] for each in chunks if each["choices"]]
        assert "".join(each.get("content") or "" for each in deltas) == text_of(profile, whole)


def test_a_storm_in_a_process_counts_refusals_too():
    with start_process(strict="mistral") as storm:
        body = json.dumps(body_of("mistral") | {"seed": 1}).encode()
        request = urllib.request.Request(storm.url + "/v1/chat/completions", body)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        caught.value.close()
        assert storm.refusals() == {("openai", "m", "seed"): 1}
        assert storm.billed() == {}

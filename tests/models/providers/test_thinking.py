"""Thinking: how each provider is asked for it, and how its turns go back to it unchanged."""

import json
from dataclasses import replace

import pytest

from abreast.models.estimate import TokenEstimates
from abreast.models.port import EFFORTS, Message, Reply, Request, ToolCall
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.gemini import Gemini
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.responses import OpenAIResponses
from tests.models.providers import test_anthropic as claude
from tests.models.providers import test_gemini as google
from tests.models.providers import test_openai as chat
from tests.models.providers import test_responses as responses
from tests.models.serving import KEY, Recorded, ask, closing, events, serving

OSLO = '{"city":"Oslo"}'
ROME = '{"city":"Rome"}'


async def turns_of(make, first, last, *, hear=None, change=None):
    """Ask, answer every tool call, ask again; returns the first reply and the second body."""
    async with serving(first, last) as server, closing(make(server.url)) as model:
        request = ask(tools=(chat.WEATHER,))
        reply = await model.complete(request, hear)
        turn = reply.message() if change is None else change(reply.message())
        answers = tuple(Message("tool", "sunny", tool_call_id=call.id) for call in reply.tool_calls)
        await model.complete(replace(request, messages=(*request.messages, turn, *answers)))
        return reply, server.body


# --- OpenAI's Responses


def responses_model(url):
    return OpenAIResponses("openai/gpt-5", f"{url}/v1", KEY)


def call_item(number, arguments):
    name = {"name": "get_weather", "arguments": arguments}
    return {"type": "function_call", "call_id": f"call_{number}", **name}


THOUGHTS = (
    responses.thought(1, summary=[{"type": "summary_text", "text": "Two cities."}]),
    responses.message("Let me see. ", phase="commentary"),
    responses.call(1, arguments=OSLO),
    responses.thought(2),
    responses.message("And the other."),
    responses.call(2, arguments=ROME),
)


@pytest.mark.parametrize("streams", [False, True])
async def test_reasoning_items_go_back_where_they_were(streams):
    whole = responses.response(*THOUGHTS)
    first = events(*responses.stream(whole), named=True) if streams else Recorded(whole)
    last = Recorded(responses.response(responses.message("Sunny")))
    hear = [].append if streams else None
    reply, body = await turns_of(responses_model, first, last, hear=hear)
    assert reply.text == "Let me see. And the other."
    assert body["input"][1:] == [
        THOUGHTS[0],
        {"role": "assistant", "content": "Let me see. ", "phase": "commentary"},
        call_item(1, OSLO),
        THOUGHTS[3],
        {"role": "assistant", "content": "And the other."},
        call_item(2, ROME),
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "call_2", "output": "sunny"},
    ]


async def test_a_turn_that_was_changed_keeps_its_reasoning_in_front():
    last = Recorded(responses.response(responses.message("Sunny")))
    _, body = await turns_of(
        responses_model,
        Recorded(responses.response(*THOUGHTS)),
        last,
        change=lambda turn: replace(turn, content="Hm."),
    )
    assert body["input"][1:6] == [
        THOUGHTS[0],
        THOUGHTS[3],
        {"role": "assistant", "content": "Hm."},
        call_item(1, OSLO),
        call_item(2, ROME),
    ]


async def test_reasoning_that_cannot_be_read_again_is_not_kept():
    bare = responses.thought(encrypted_content=None)  # its id is unknown where nothing is stored
    answer = Recorded(responses.response(bare, responses.call(1)))
    reply, _ = await responses.asked(answer, ask(tools=(chat.WEATHER,)))
    assert reply.kept == ()


async def test_a_reply_to_a_request_without_tools_keeps_nothing():
    answer = Recorded(responses.response(*THOUGHTS))
    assert (await responses.asked(answer))[0].kept == ()


async def test_what_is_nested_too_deep_to_be_recorded_is_not_kept():
    deep = "text"
    for _ in range(300):
        deep = [deep]
    answer = Recorded(
        responses.response(responses.thought(summary=deep), responses.thought(2), responses.call(1))
    )
    reply, _ = await responses.asked(answer, ask(tools=(chat.WEATHER,)))
    assert [each.get("item") for each in reply.kept] == [responses.thought(2), None]


async def test_a_key_in_what_is_kept_is_not_kept():
    planted = responses.thought(summary=[{"type": "summary_text", "text": f"It is {KEY}."}])
    answer = Recorded(responses.response(planted, responses.thought(2), responses.call(1)))
    reply, _ = await responses.asked(answer, ask(tools=(chat.WEATHER,)))
    assert [each.get("item") for each in reply.kept] == [responses.thought(2), None]
    assert KEY not in json.dumps(reply.kept)


# --- Anthropic


def claude_model(url):
    return Anthropic("anthropic/claude-opus-4-6", f"{url}/v1", KEY)


THINKING = {"type": "thinking", "thinking": "Two cities.", "signature": "EqQBCg=="}
HIDDEN = {"type": "redacted_thinking", "data": "EmwKAhgB"}
OMITTED = {"type": "thinking", "thinking": "", "signature": "EqQBCh=="}


def use(number, city):
    return {
        "type": "tool_use",
        "id": f"toolu_0{number}",
        "name": "get_weather",
        "input": {"city": city},
    }


CLAUDE_BLOCKS = [
    THINKING,
    HIDDEN,
    claude.text("Let me see. "),
    use(1, "Oslo"),
    OMITTED,
    claude.text("And the other."),
    use(2, "Rome"),
]


def claude_stream():
    """The blocks in the pieces in which they are streamed."""
    told = [claude.BEGIN]
    for index, block in enumerate(CLAUDE_BLOCKS):
        if block["type"] == "thinking":
            half = len(block["thinking"]) // 2
            pieces = [block["thinking"][:half], block["thinking"][half:]]
            told.append(claude.start(index, {**block, "thinking": "", "signature": ""}))
            told += [claude.delta(index, type="thinking_delta", thinking=piece) for piece in pieces]
            told.append(claude.delta(index, type="signature_delta", signature=block["signature"]))
        elif block["type"] == "tool_use":
            told.append(claude.start(index, {**block, "input": {}}))
            written = json.dumps(block["input"])
            told.append(claude.delta(index, type="input_json_delta", partial_json=written))
        elif block["type"] == "text":
            told.append(claude.start(index, claude.text("")))
            told.append(claude.delta(index, type="text_delta", text=block["text"]))
        else:
            told.append(claude.start(index, block))
        told.append(claude.stop(index))
    return claude.flow(*told, claude.ended("tool_use"), claude.END)


@pytest.mark.parametrize("streams", [False, True])
async def test_thinking_blocks_go_back_where_they_were(streams):
    whole = Recorded(claude.message(*CLAUDE_BLOCKS, reason="tool_use"))
    last = Recorded(claude.message(claude.text("Sunny")))
    heard = []
    first, hear = (claude_stream(), heard.append) if streams else (whole, None)
    reply, body = await turns_of(claude_model, first, last, hear=hear)
    assert reply.text == "Let me see. And the other."
    assert "".join(heard) == (reply.text if streams else "")
    assert body["messages"][1] == {"role": "assistant", "content": CLAUDE_BLOCKS}


async def test_thinking_that_was_cut_off_has_no_signature_and_is_not_kept():
    cut = {"type": "thinking", "thinking": "Two ci", "signature": ""}
    answer = Recorded(claude.message(cut, claude.text("Hi"), reason="max_tokens"))
    reply, _ = await claude.asked(answer, ask(tools=(chat.WEATHER,)))
    assert (reply.text, reply.kept) == ("Hi", ())


# --- Gemini


def gemini_model(url):
    return Gemini("gemini/gemini-3-pro", f"{url}/v1beta", KEY)


def function(city, **more):
    return {"functionCall": {"name": "get_weather", "args": {"city": city}}} | more


GEMINI_PARTS = [
    google.text("Thinking aloud", thought=True),
    google.text("Let me "),
    google.text("see.", thoughtSignature="CsA0"),
    function("Oslo", thoughtSignature="CsA1"),
    function("Rome"),
    google.text("", thoughtSignature="CsA2"),
]


@pytest.mark.parametrize("streams", [False, True])
async def test_thought_signatures_go_back_on_their_parts(streams):
    last = Recorded(google.generated(google.text("Sunny")))
    *inner, end = [google.generated(part, reason=None) for part in GEMINI_PARTS]
    end["candidates"][0]["finishReason"] = "STOP"
    whole = Recorded(google.generated(*GEMINI_PARTS))
    first, hear = (google.flow(*inner, end), [].append) if streams else (whole, None)
    reply, body = await turns_of(gemini_model, first, last, hear=hear)
    assert reply.text == "Let me see."
    assert body["contents"][1] == {"role": "model", "parts": GEMINI_PARTS[1:]}


async def test_a_signature_stays_on_its_call_if_the_text_was_changed():
    last = Recorded(google.generated(google.text("Sunny")))
    _, body = await turns_of(
        gemini_model,
        Recorded(google.generated(*GEMINI_PARTS)),
        last,
        change=lambda turn: replace(turn, content="Hm."),
    )
    assert body["contents"][1]["parts"] == [
        google.text("Hm."),
        function("Oslo", thoughtSignature="CsA1"),
        function("Rome"),
    ]


# --- chat completions


def deepseek_model(url):
    return OpenAI("deepseek/deepseek-v4", f"{url}/v1", KEY)


CHAT_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": OSLO},
}


@pytest.mark.parametrize("streams", [False, True])
async def test_thinking_beside_the_text_goes_back_with_the_tool_calls(streams):
    whole = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "A city.",
        "tool_calls": [CHAT_CALL],
    }
    pieces = [
        chat.chunk({"role": "assistant", "reasoning_content": "A ci"}),
        chat.chunk({"reasoning_content": "ty."}),
        chat.chunk({"tool_calls": [{"index": 0, **CHAT_CALL}]}),
        chat.chunk({}, "tool_calls"),
    ]
    first = Recorded(chat.completion(whole, "tool_calls"))
    heard = []
    hear = heard.append if streams else None
    first = events(*pieces, done=True) if streams else first
    reply, body = await turns_of(deepseek_model, first, Recorded(chat.said("Sunny")), hear=hear)
    assert (reply.text, heard) == ("", [])
    assert body["messages"][1] == {**whole, "content": None}


async def test_thinking_of_a_turn_without_tool_calls_is_dropped():
    answer = {"role": "assistant", "content": "Sunny", "reasoning_content": "It is."}
    reply, body = await turns_of(
        deepseek_model, Recorded(chat.completion(answer)), Recorded(chat.said("Yes"))
    )
    assert (reply.text, reply.kept) == ("Sunny", ())
    assert body["messages"][1] == {"role": "assistant", "content": "Sunny"}


# --- from one provider to another


async def test_what_another_provider_gave_is_left_out():
    first = Recorded(claude.message(*CLAUDE_BLOCKS, reason="tool_use"))
    async with serving(first) as server, closing(claude_model(server.url)) as model:
        reply = await model.complete(ask(tools=(chat.WEATHER,)))
    assert reply.kept
    request = Request((Message("user", "Hello"), reply.message()))
    others = (responses_model, gemini_model, deepseek_model)
    for make in others:
        async with closing(make("http://127.0.0.1:1")) as model:
            plain = replace(
                request, messages=(request.messages[0], replace(reply.message(), kept=()))
            )
            assert model.write(request, stream=False) == model.write(plain, stream=False)


# --- how much


def written(make, **options):
    return make.write(ask(**options), stream=False)


def claude_body(model, **options):
    body = written(Anthropic(f"anthropic/{model}", key=KEY), **options)
    return {name: body.get(name) for name in ("thinking", "output_config", "max_tokens")}


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-5-20250929",
        "claude-opus-4-1",
        "claude-3-7-sonnet-latest",
        "claude-opus-4-20250514",
    ],
)
async def test_older_claude_models_think_by_a_budget_beside_the_reply(model):
    budget = {"type": "enabled", "budget_tokens": 8192}
    for options in ({"reasoning": "medium"}, {"thinking_tokens": 8192}):
        assert claude_body(model, max_tokens=100, **options) == {
            "thinking": budget,
            "output_config": None,
            "max_tokens": 8292,
        }
    assert claude_body(model, reasoning="high", thinking_tokens=2000) == {
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": None,
        "max_tokens": 6096,
    }
    small = claude_body(model, thinking_tokens=10, max_tokens=100)
    assert (small["thinking"]["budget_tokens"], small["max_tokens"]) == (1024, 1124)
    unsent = Anthropic(f"anthropic/{model}", key=KEY).unsent
    assert unsent(ask(thinking_tokens=10)) == ("thinking_tokens 1024",)


@pytest.mark.parametrize(
    "model", ["claude-opus-4-6", "claude-opus-4-7-20260416", "claude-sonnet-5"]
)
async def test_newer_claude_models_think_by_an_effort(model):
    assert claude_body(model, reasoning="xhigh", thinking_tokens=2000, max_tokens=100) == {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "xhigh"},
        "max_tokens": 2100,
    }
    assert claude_body(model, thinking_tokens=2000)["output_config"] is None
    assert claude_body(model, reasoning="medium")["max_tokens"] == 4096 + 8192
    assert claude_body(model, reasoning="minimal")["output_config"] == {"effort": "low"}
    assert Anthropic(f"anthropic/{model}").unsent(ask(reasoning="minimal")) == ("reasoning low",)


@pytest.mark.parametrize("model", ["claude-opus-4-1", "claude-opus-4-7"])
async def test_claude_can_be_asked_not_to_think(model):
    for options in ({"reasoning": "none"}, {"thinking_tokens": 0}):
        assert claude_body(model, max_tokens=100, **options) == {
            "thinking": {"type": "disabled"},
            "output_config": None,
            "max_tokens": 100,
        }


def gemini_config(model, **options):
    return written(Gemini(f"gemini/{model}", key=KEY), **options).get("generationConfig")


async def test_gemini_thinks_by_a_budget_or_a_level_as_its_version_takes_it():
    assert gemini_config("gemini-2.5-flash", reasoning="medium", max_tokens=100) == {
        "thinkingConfig": {"thinkingBudget": 8192},
        "maxOutputTokens": 100,
    }
    assert gemini_config("gemini-2.5-flash", reasoning="none")["thinkingConfig"] == {
        "thinkingBudget": 0
    }
    for model in ("gemini-2.5-flash", "gemini-3-pro"):
        both = gemini_config(model, reasoning="high", thinking_tokens=500, max_tokens=100)
        assert both == {"thinkingConfig": {"thinkingBudget": 500}, "maxOutputTokens": 600}
    model = Gemini("gemini/gemini-3-pro", key=KEY)
    assert gemini_config("gemini-3-pro", reasoning="low") == {
        "thinkingConfig": {"thinkingLevel": "low"}
    }
    assert model.unsent(ask(reasoning="low")) == ()
    assert gemini_config("gemini-3-pro", reasoning="max") == {
        "thinkingConfig": {"thinkingLevel": "high"}
    }
    assert model.unsent(ask(reasoning="max")) == ("reasoning high",)


def chat_body(name, url, **options):
    body = written(OpenAI(name, url, KEY), **options)
    return {key: value for key, value in body.items() if key not in ("model", "messages")}


@pytest.mark.parametrize("effort", EFFORTS)
async def test_chat_completions_have_an_effort_and_one_bound_for_both(effort):
    body = chat_body(
        "openai-chat/gpt-5",
        "https://api.openai.com/v1",
        reasoning=effort,
        max_tokens=100,
        thinking_tokens=900,
    )
    assert body == {"reasoning_effort": effort, "max_completion_tokens": 1000}


async def test_chat_completions_cannot_bound_thinking_alone():
    model = OpenAI("openai-chat/gpt-5", key=KEY)
    assert model.unsent(ask(thinking_tokens=900)) == ("without thinking_tokens",)
    assert model.unsent(ask(thinking_tokens=900, max_tokens=1)) == ()


async def test_openrouter_takes_one_of_effort_and_tokens():
    name, url = "router/anthropic/claude", "https://openrouter.ai/api/v1"
    assert chat_body(name, url) == {}
    assert chat_body(name, url, reasoning="low") == {"reasoning": {"effort": "low"}}
    assert chat_body(name, url, reasoning="low", thinking_tokens=900) == {
        "reasoning": {"max_tokens": 900}
    }
    assert OpenAI(name, url).unsent(ask(thinking_tokens=900)) == ()


async def test_deepseek_is_asked_not_to_think_in_its_own_words():
    name, url = "deepseek/deepseek-v4", "https://api.deepseek.com/v1"
    assert chat_body(name, url, reasoning="none") == {"thinking": {"type": "disabled"}}
    assert chat_body(name, url, reasoning="high") == {"reasoning_effort": "high"}


def test_room_for_thinking_is_reserved_beside_that_for_the_answer():
    assert TokenEstimates().of(ask(max_tokens=10, thinking_tokens=90)).output_tokens == 100


def test_the_turn_of_a_reply_has_its_calls():
    calls = (ToolCall("call_1", "get_weather", OSLO),)
    kept = ({"provider": "gemini", "call": 0, "with": {"thoughtSignature": "CsA1"}},)
    turn = Reply("Hm.", tool_calls=calls, kept=kept).message()
    assert turn == Message("assistant", "Hm.", calls, kept=kept)

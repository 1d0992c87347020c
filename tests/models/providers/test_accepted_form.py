"""What a model refuses is learned: sent again without it, once, and not sent again later."""

import asyncio
import json
from typing import Any

import pytest

from abreast.core.errors import RequestRefused
from abreast.models.providers.accepted_form import AcceptedForm, parameters
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.gemini import Gemini
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.responses import OpenAIResponses
from tests.models.serving import Recorded, ask, closing, events, serving

KEY = "sk-learned-0123"
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def openai_error(message: str, param: str | None = None, code: str | None = None) -> Recorded:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Recorded({"error": error}, status=400)


def anthropic_error(message: str) -> Recorded:
    error = {"type": "invalid_request_error", "message": message}
    return Recorded({"type": "error", "error": error}, status=400)


def mistral_error(name: str) -> Recorded:
    detail = [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs", "input": 1}]
    return Recorded({"object": "error", "message": {"detail": detail}}, status=422)


def gemini_error(message: str) -> Recorded:
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return Recorded({"error": error}, status=400)


def completion(text: str = "Hi", **message: Any) -> Recorded:
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}}
    return Recorded({"choices": [choice | {"finish_reason": "stop"}]})


NO_TEMPERATURE = openai_error(
    "Unsupported value: 'temperature' does not support 0 with this model. "
    "Only the default (1) value is supported.",
    "temperature",
    "unsupported_value",
)
NO_MAX_TOKENS = openai_error(
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    "max_tokens",
    "unsupported_parameter",
)


@pytest.mark.parametrize(
    ("refusal", "options", "lost"),
    [
        (NO_TEMPERATURE, {"temperature": 0.0}, "temperature"),
        (mistral_error("seed"), {"seed": 3}, "seed"),
        (openai_error("Unrecognized request argument supplied: seed"), {"seed": 3}, "seed"),
        (openai_error("'stop' is not supported with this model."), {"stop": ("x",)}, "stop"),
        (
            openai_error("Model does not support parameter presencePenalty."),
            {"extra": {"presence_penalty": 1}},
            "presence_penalty",
        ),
        (
            Recorded({"detail": "top_p: unknown field"}, status=422),
            {"extra": {"top_p": 0.5}},
            "top_p",
        ),
    ],
)
async def test_a_refused_parameter_is_left_out_and_told(
    refusal: Recorded, options: dict[str, Any], lost: str
) -> None:
    async with serving(refusal, completion(), completion()) as server:
        async with closing(OpenAI("openai/x", server.url, KEY)) as model:
            replies = [await model.complete(ask(**options)) for _ in range(2)]
    assert len(server.bodies) == 3  # one refused, and the second request was sent right
    assert lost in server.bodies[0]
    assert lost not in server.bodies[1] | server.bodies[2]
    assert [reply.changed for reply in replies] == [(f"without {lost}",)] * 2


async def test_max_tokens_goes_under_the_name_that_the_refusal_asks_for() -> None:
    async with serving(NO_MAX_TOKENS, completion()) as server:
        async with closing(OpenAI("x/y", server.url, KEY, max_tokens="max_tokens")) as model:
            reply = await model.complete(ask(max_tokens=9))
    assert server.bodies[1]["max_completion_tokens"] == 9
    assert "max_tokens" not in server.bodies[1]
    assert reply.changed == ()


async def test_several_parameters_are_learned_one_after_the_other() -> None:
    answers = (NO_TEMPERATURE, NO_MAX_TOKENS, mistral_error("seed"), completion())
    async with serving(*answers) as server:
        async with closing(OpenAI("x/y", server.url, KEY, max_tokens="max_tokens")) as model:
            reply = await model.complete(ask(temperature=0.0, max_tokens=9, seed=1))
    assert set(server.bodies[3]) == {"model", "messages", "max_completion_tokens"}
    assert reply.changed == ("without seed", "without temperature")


@pytest.mark.parametrize(
    "refusal",
    [
        openai_error("Invalid value: temperature must be at most 2.", "temperature"),
        openai_error("max_tokens is too large: 99999. This model supports at most 4096 tokens."),
        openai_error("'tools' is not supported with this model"),
        openai_error("the model has stopped being polite"),
        Recorded({"error": "temperature is not supported"}, status=500),
    ],
)
async def test_what_is_wrong_with_a_value_is_for_the_user_to_know(refusal: Recorded) -> None:
    tool = {"name": "t", "description": "", "parameters": {"type": "object", "properties": {}}}
    request = ask(temperature=3.0, max_tokens=99_999, tools=(tool,))
    async with serving(refusal) as server:
        async with closing(OpenAI("x/y", server.url, KEY, max_tokens="max_tokens")) as model:
            with pytest.raises(Exception, match=r"temperature|tokens|tools|polite"):
                await model.complete(request)
    assert len(server.bodies) == 1


async def test_a_server_that_refuses_everything_ends_with_its_own_words() -> None:
    async with serving(*[NO_TEMPERATURE] * 4) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            with pytest.raises(RequestRefused, match="temperature"):
                await model.complete(ask(temperature=0.0))
    assert len(server.bodies) == 2


async def test_a_schema_is_asked_for_in_the_next_way() -> None:
    no_schema = openai_error("This response_format type is unavailable now")
    no_tool = openai_error("deepseek-reasoner does not support this tool_choice")
    async with serving(no_schema, no_tool, completion('{"x": 3}')) as server:
        async with closing(OpenAI("deepseek/r", server.url, KEY)) as model:
            reply = await model.complete(ask(schema=POINT))
    assert server.bodies[0]["response_format"]["type"] == "json_schema"
    assert server.bodies[1]["tool_choice"]["function"]["name"] == "final_reply"
    last = server.bodies[2]
    assert last["response_format"] == {"type": "json_object"}
    assert "by this schema" in last["messages"][0]["content"]
    assert (reply.value, reply.changed) == ({"x": 3}, ("schema by json mode and the prompt",))


async def test_a_way_that_is_refused_for_one_schema_is_kept_for_others() -> None:
    bad = openai_error(
        "Invalid schema for response_format 'reply': In context=('properties', 'x'), "
        "'minimum' is not permitted.",
        "response_format",
    )
    other = POINT | {"description": "another"}
    answers = [completion('{"x": 3}')] * 3
    async with serving(bad, *answers) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            for schema in (POINT, other, POINT):
                await model.complete(ask(schema=schema))
    assert [("tool_choice" in body) for body in server.bodies] == [False, True, False, True]


async def test_a_way_that_a_server_does_not_know_is_refused_for_all_schemas() -> None:
    text = (
        "[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), "
        "'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}]"
    )
    answers = [completion('{"x": 3}')] * 2
    async with serving(Recorded({"message": text}, status=400), *answers) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            for schema in (POINT, POINT | {"description": "another"}):
                await model.complete(ask(schema=schema))
    assert len(server.bodies) == 3


async def test_the_value_is_the_input_of_the_tool() -> None:
    call = {"id": "c", "type": "function"}
    call["function"] = {"name": "final_reply", "arguments": '{"value": [1]}'}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    schema, heard = {"type": "array", "items": {"type": "integer"}}, []
    async with serving(completion("", tool_calls=[call]), events(chunk, end, done=True)) as server:
        async with closing(OpenAI("x/y", server.url, KEY, structured="tool")) as model:
            whole = await model.complete(ask(schema=schema))
            streamed = await model.complete(ask(schema=schema), heard.append)
    for reply in (whole, streamed):
        assert (reply.value, reply.finish, reply.tool_calls) == ([1], "stop", ())
    assert heard == ["[1]"]


async def test_anthropic_models_that_refuse_a_forced_tool_or_the_native_format() -> None:
    done = {"type": "message", "stop_reason": "end_turn", "content": []}
    native = Recorded(done | {"content": [{"type": "text", "text": '{"x": 3}'}]})
    extra = anthropic_error("output_config: Extra inputs are not permitted")
    forced = anthropic_error("tool_choice: forced tool use is not supported with this model.")
    sampling = anthropic_error("`temperature` is deprecated for this model.")
    async with serving(sampling, extra, forced, native) as server:
        async with closing(Anthropic("anthropic/c", server.url, KEY)) as model:
            reply = await model.complete(ask(schema=POINT, temperature=0.0))
    assert [sorted({"output_config", "tool_choice"} & set(body)) for body in server.bodies] == [
        ["output_config"],
        ["output_config"],
        ["tool_choice"],
        [],
    ]
    assert reply.value == {"x": 3}
    assert reply.changed == ("without temperature", "schema by the prompt")


# --- a tool that must be called

TOOLS = tuple({"name": name, "parameters": {"type": "object"}} for name in ("find", "other"))
NO_FORCE = openai_error("deepseek-reasoner does not support this tool_choice")


@pytest.mark.parametrize(
    ("open_model", "field", "one", "any_tool"),
    [
        (
            OpenAI,
            "tool_choice",
            {"type": "function", "function": {"name": "find"}},
            "required",
        ),
        (OpenAIResponses, "tool_choice", {"type": "function", "name": "find"}, "required"),
        (Anthropic, "tool_choice", {"type": "tool", "name": "find"}, {"type": "any"}),
        (
            Gemini,
            "toolConfig",
            {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["find"]}},
            {"functionCallingConfig": {"mode": "ANY"}},
        ),
    ],
)
def test_a_tool_that_must_be_called_is_sent_in_the_form_of_each_api(
    open_model: Any, field: str, one: object, any_tool: object
) -> None:
    model = open_model("p/m", "http://127.0.0.1/v1", KEY)
    chosen = [model.body_of(ask(tools=TOOLS, tool_choice=name))[0] for name in ("find", "*", None)]
    assert [body.get(field) for body in chosen] == [one, any_tool, None]
    both = model.body_of(ask(tools=TOOLS, tool_choice="*", schema=POINT))[0]
    assert "final_reply" not in json.dumps(both)
    with pytest.raises(RequestRefused, match="none of its tools: find, other"):
        model.body_of(ask(tools=TOOLS, tool_choice="lost"))
    with pytest.raises(RequestRefused, match="there are none"):
        model.body_of(ask(tool_choice="*"))


async def test_a_model_that_refuses_to_be_forced_is_asked_without_it_from_then_on() -> None:
    request = ask(tools=TOOLS, tool_choice="find")
    async with serving(NO_FORCE, completion(), completion(), completion('{"x": 3}')) as server:
        async with closing(OpenAI("deepseek/r", server.url, KEY, structured="tool")) as model:
            replies = [await model.complete(request) for _ in range(2)]
            valued = await model.complete(ask(schema=POINT))
    assert [("tool_choice" in body) for body in server.bodies] == [True, False, False, False]
    assert [len(body["tools"]) for body in server.bodies[:3]] == [2, 2, 2]
    assert [reply.changed for reply in replies] == [("without tool_choice",)] * 2
    # A value can't be had by a tool that must be called either.
    assert (valued.value, server.bodies[3]["response_format"]) == (
        {"x": 3},
        {"type": "json_object"},
    )


async def test_a_schema_beside_it_is_not_blamed() -> None:
    request = ask(tools=TOOLS, tool_choice="*", schema=POINT)
    async with serving(NO_FORCE, completion('{"x": 3}')) as server:
        async with closing(OpenAI("deepseek/r", server.url, KEY)) as model:
            reply = await model.complete(request)
    assert [body["response_format"]["type"] for body in server.bodies] == ["json_schema"] * 2
    assert (reply.value, reply.changed) == ({"x": 3}, ("without tool_choice",))


async def test_thinking_that_forbids_a_forced_tool_is_no_lesson_about_the_model() -> None:
    refused = anthropic_error("Thinking may not be enabled when tool_choice forces tool use.")
    request = ask(tools=TOOLS, tool_choice="find", thinking_tokens=2048)
    async with serving(refused) as server:
        model = Anthropic("anthropic/claude-3-7-sonnet", server.url, KEY)
        async with closing(model):
            with pytest.raises(RequestRefused, match="Thinking may not"):
                await model.complete(request)
    assert (len(server.bodies), bool(model.form)) == (1, False)


async def test_a_wrong_value_of_it_is_for_the_user_to_know() -> None:
    wrong = openai_error("Invalid value for 'tool_choice': must be a function.", "tool_choice")
    async with serving(wrong) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            with pytest.raises(RequestRefused, match="tool_choice"):
                await model.complete(ask(tools=TOOLS, tool_choice="find"))
    assert len(server.bodies) == 1


async def test_gemini_names_its_parameters_in_a_part_of_the_body() -> None:
    unknown = gemini_error(
        'Invalid JSON payload received. Unknown name "responseJsonSchema" at '
        "'generation_config': Cannot find field."
    )
    no_seed = gemini_error("seed is not supported for this model")
    said = {"candidates": [{"content": {"parts": [{"text": '{"x": 3}'}]}, "finishReason": "STOP"}]}
    async with serving(unknown, no_seed, Recorded(said)) as server:
        async with closing(Gemini("gemini/g", server.url, KEY)) as model:
            reply = await model.complete(ask(schema=POINT, seed=3))
    assert server.bodies[2]["generationConfig"] == {"responseMimeType": "application/json"}
    assert reply.value == {"x": 3}
    assert reply.changed == ("without seed", "schema by json mode and the prompt")


async def test_a_stream_learns_too() -> None:
    refused = openai_error("Unknown parameter: 'stream_options'.", "stream_options")
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    heard: list[str] = []
    async with serving(refused, events(chunk, done=True)) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            reply = await model.complete(ask(), heard.append)
    assert (heard, reply.changed) == (["Hi"], ())
    assert "stream_options" not in server.bodies[1]


# --- the first call goes alone


async def test_one_refusal_is_enough_for_many_calls_at_once() -> None:
    answers = [NO_TEMPERATURE, mistral_error("seed"), *[completion()] * 20]
    async with serving(*answers) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            requests = [ask(f"{n}", temperature=0.0, seed=n) for n in range(20)]
            replies = await asyncio.gather(*map(model.complete, requests))
    assert len(server.bodies) == 22
    assert [reply.text for reply in replies] == ["Hi"] * 20
    assert all("temperature" not in body for body in server.bodies[1:])


async def test_a_call_that_fails_alone_lets_the_next_go() -> None:
    broken = Recorded({"error": {"message": "overloaded"}}, status=500)
    async with serving(broken, completion()) as server:
        async with closing(OpenAI("x/y", server.url, KEY)) as model:
            first, second = await asyncio.gather(
                model.complete(ask("a")), model.complete(ask("b")), return_exceptions=True
            )
    assert isinstance(first, Exception)
    assert not isinstance(second, BaseException)
    assert len(server.bodies) == 2


def test_parameters_inside_others_have_names_of_their_own() -> None:
    body = {
        "model": "x",
        "generationConfig": {"seed": 1, "thinkingConfig": {"thinkingLevel": "low"}},
        "output_config": {"effort": "low", "format": {}},
    }
    assert [name for name, _ in parameters(body)] == [
        "model",
        "seed",
        "thinkingConfig",
        "thinkingConfig.thinkingLevel",
        "output_config",
        "output_config.effort",
        "output_config.format",
    ]
    form = AcceptedForm(dropped={"thinkingConfig.thinkingLevel", "output_config.effort", "seed"})
    form.apply(body)
    assert json.loads(json.dumps(body)) == {"model": "x", "output_config": {"format": {}}}

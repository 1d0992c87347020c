"""The dialects of the server are those of the providers' adapters, read from the other side."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.outcome import Usage
from abreast.models.media import MediaFile
from abreast.models.port import Message, Reply, Request, ToolCall
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.provider import DONE, Events
from abreast.models.providers.responses import OpenAIResponses
from abreast.serve.dialects.anthropic import Messages
from abreast.serve.dialects.chat import Chat
from abreast.serve.dialects.dialect import Asked, Unsupported, encode, lenient_request
from abreast.serve.dialects.responses import ResponsesApi
from abreast.serve.faults import ApiFault
from tests.models.pictures import png

ADAPTERS = {
    "chat": (Chat(), OpenAI("openai/x", "http://127.0.0.1/v1")),
    "responses": (ResponsesApi(), OpenAIResponses("openai/x", "http://127.0.0.1/v1")),
    "messages": (Messages(), Anthropic("anthropic/claude-3-x", "http://127.0.0.1/v1")),
}
BARE = Request((Message("user", "x"),))
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
names = st.text("abcdefghij_", min_size=1, max_size=8)
calls = st.builds(
    ToolCall, names, names, st.dictionaries(names, st.integers() | texts, max_size=2).map(encode)
)
replies = st.builds(
    Reply,
    text=texts | st.just(""),
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    usage=st.builds(
        Usage,
        requests=st.just(1),
        input_tokens=st.integers(100, 1000),
        output_tokens=st.integers(10, 1000),
        cached_input_tokens=st.integers(0, 50),
        reasoning_tokens=st.integers(0, 9),
    ),
).filter(lambda reply: reply.text or reply.tool_calls)
tools = st.lists(names, max_size=3, unique=True).map(
    lambda found: tuple(
        {"name": name, "description": "does it", "parameters": SCHEMA} for name in found
    )
)
turns = st.lists(
    st.one_of(
        texts.map(lambda text: [Message("user", text)]),
        st.tuples(texts, calls, texts).map(
            lambda found: [
                Message("user", found[0]),
                Message("assistant", "", (found[1],)),
                Message("tool", found[2], tool_call_id=found[1].id),
            ]
        ),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: tuple(turn for part in found for turn in part))


def asked(**body):
    return Asked("x", "1", 1, {"model": "x", **body})


def draft_facts(draft):
    used = draft.input_tokens, draft.output_tokens
    return draft.text, [call_facts(call) for call in draft.tool_calls], draft.finish, used


def call_facts(call):
    return call.id, call.name, json.loads(call.arguments)


@pytest.mark.parametrize("name", ADAPTERS)
@given(reply=replies, pieces=st.integers(1, 5))
def test_a_reply_reads_the_same_whole_and_streamed(name, reply, pieces):
    dialect, provider = ADAPTERS[name]
    reply = replace(reply, finish="tool_calls" if reply.tool_calls else "stop")
    whole = provider.read(json.loads(encode(dialect.write(reply, asked()))), BARE)
    writer = dialect.stream(asked(stream=True, stream_options={"include_usage": True}))
    size = max(1, len(reply.text) // pieces)
    parts = [reply.text[at : at + size] for at in range(0, len(reply.text), size)]
    stream = b"".join(writer.text(part) for part in parts) + writer.end(reply)
    fold = provider.fold(BARE)
    for data in Events().feed(stream):
        if data != DONE and (piece := fold.take(json.loads(data))):
            fold.pieces.append(piece)
    assert draft_facts(fold.finished()) == draft_facts(whole)
    assert (whole.text, whole.finish) == (reply.text, reply.finish)
    assert list(map(call_facts, whole.tool_calls)) == list(map(call_facts, reply.tool_calls))
    assert (whole.input_tokens, whole.output_tokens) == (
        reply.usage.input_tokens,
        reply.usage.output_tokens,
    )


@pytest.mark.parametrize("name", ADAPTERS)
@given(messages=turns, system=texts | st.none(), tools=tools, tokens=st.integers(16, 99))
def test_what_an_adapter_writes_is_read_back_as_the_request_that_it_was(
    name, messages, system, tools, tokens
):
    dialect, provider = ADAPTERS[name]
    request = Request(
        messages, system=system, temperature=0.5, max_tokens=tokens, tools=tools, schema=None
    )
    read = dialect.read(json.loads(encode(provider.write(request, stream=True))))
    own = tuple(turn for turn in read.messages if turn.role != "system")
    told = [read.system] + [turn.content for turn in read.messages if turn.role == "system"]
    assert [text for text in told if text] == ([system] if system else [])
    assert _plain(own) == _plain(messages)
    assert (read.temperature, read.max_tokens) == (0.5, tokens)
    assert [dict(tool) for tool in read.tools] == [dict(tool) for tool in tools]


def _plain(messages):
    """The turns; successive ones of the user are one, as Anthropic has them."""
    found = []
    for turn in messages:
        facts = turn.role, turn.content, list(map(call_facts, turn.tool_calls)), turn.tool_call_id
        if found and turn.role == "user" == found[-1][0]:
            found[-1] = ("user", f"{found[-1][1]}\n{turn.content}", [], None)
        else:
            found.append(facts)
    return found


@pytest.mark.parametrize("name", ADAPTERS)
def test_images_and_schemas_are_read(name):
    dialect, provider = ADAPTERS[name]
    picture = MediaFile.of(png())
    turn = Message("user", "What is it?", files=(picture,))
    body = provider.write(Request((turn,), schema=SCHEMA, max_tokens=99), stream=False)
    read = dialect.read(json.loads(encode(body)))
    assert (read.messages, read.schema) == ((turn,), SCHEMA)


@pytest.mark.parametrize("choice", [None, "*", "look-up"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_the_tool_that_must_be_called_is_read(name, choice):
    dialect, provider = ADAPTERS[name]
    tools = tuple({"name": tool, "parameters": {"type": "object"}} for tool in ("look-up", "other"))
    request = replace(BARE, tools=tools, tool_choice=choice)
    read = dialect.read(json.loads(encode(provider.write(request, stream=False))))
    assert (read.tool_choice, [tool["name"] for tool in read.tools]) == (
        *(choice, ["look-up", "other"]),
    )


@pytest.mark.parametrize("name", ADAPTERS)
def test_no_tool_is_offered_if_none_may_be_called(name):
    dialect, provider = ADAPTERS[name]
    body = provider.write(replace(BARE, tools=({"name": "x"},)), stream=False)
    none = {"type": "none"} if name == "messages" else "none"
    assert dialect.read({**body, "tool_choice": none}).tools == ()


BAD = [
    ("chat", {"messages": []}, "messages"),
    ("chat", {"messages": [{"role": "system", "content": "x"}]}, "messages"),
    ("chat", {"messages": [{"role": "bard", "content": "x"}]}, "messages[0].role"),
    ("chat", {"n": 2}, "n"),
    ("chat", {"logprobs": True}, "logprobs"),
    ("chat", {"temperature": "hot"}, "temperature"),
    ("chat", {"max_tokens": 0}, "max_tokens"),
    ("chat", {"stop": [1]}, "stop"),
    ("chat", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ("chat", {"tool_choice": "required"}, "tool_choice"),
    ("chat", {"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
    ("chat", {"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ("responses", {"tool_choice": {"type": "web_search"}}, "tool_choice"),
    ("chat", {"reasoning_effort": "a bit"}, "reasoning_effort"),
    ("chat", {"response_format": {"type": "grammar"}}, "response_format"),
    ("chat", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ("chat", {"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ("chat", {"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0]"),
    ("chat", {"tools": "all"}, "tools"),
    ("responses", {"previous_response_id": "resp_1"}, "previous_response_id"),
    ("responses", {"input": [{"type": "item_reference"}]}, "input[0]"),
    ("responses", {"input": [{"role": "bard", "content": "x"}]}, "input[0].role"),
    ("responses", {"input": [{"role": "user", "content": [{"type": "x"}]}]}, "input[0].content[0]"),
    ("responses", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ("responses", {"text": {"format": {"type": "x"}}}, "text.format"),
    ("responses", {"instructions": 3}, "instructions"),
    ("messages", {"top_k": 5}, "top_k"),
    ("messages", {"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages[0]"),
    ("messages", {"tool_choice": {"type": "any"}}, "tool_choice"),
    ("messages", {"tool_choice": "auto"}, "tool_choice"),
    ("messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    ("messages", {"stop_sequences": "x"}, "stop_sequences"),
    ("messages", {"thinking": {"type": "deep"}}, "thinking"),
    ("messages", {"system": 3}, "system"),
    ("messages", {"output_config": {"format": {"type": "x"}}}, "output_config.format"),
]


@pytest.mark.parametrize(("name", "fields", "parameter"), BAD)
def test_what_a_request_cant_carry_is_refused_with_the_name_of_the_field(name, fields, parameter):
    dialect, provider = ADAPTERS[name]
    body = {**provider.write(BARE, stream=False), **fields}
    with pytest.raises(Unsupported) as refused:
        dialect.read(body)
    assert refused.value.parameter.startswith(parameter)
    assert parameter.split("[", maxsplit=1)[0].split(".")[0] in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://example.com/a.png", "file:///etc/passwd", "data:image/png;base64,!!", "/x"]
)
def test_a_file_that_is_not_in_the_request_is_never_fetched(url):
    part = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(Unsupported):
        Chat().read({"model": "x", "messages": [{"role": "user", "content": [part]}]})


@pytest.mark.parametrize("name", ADAPTERS)
def test_fields_that_say_who_asks_are_no_reason_to_refuse(name):
    dialect, provider = ADAPTERS[name]
    body = {**provider.write(BARE, stream=False), "metadata": {"user_id": "u"}, "service_tier": "a"}
    assert dialect.read(body).messages == BARE.messages


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_kind_of_fault_has_its_words_in_every_dialect(name):
    dialect, _ = ADAPTERS[name]
    kinds = ("invalid", "key", "missing", "large", "refused", "wait", "quota", "server")
    for kind in (*kinds, "overloaded"):
        fault = ApiFault(400, kind, "what happened")
        assert dialect.fault(fault)["error"]["message"] == "what happened"
        [data] = Events().feed(dialect.fault_event(fault))
        assert "what happened" in str(json.loads(data))


@given(st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(names, inner)))
def test_the_estimate_of_a_body_counts_all_of_its_text(value):
    def length(found):
        if isinstance(found, str):
            return len(found)
        return sum(map(length, found.values() if isinstance(found, dict) else found))

    text = lenient_request({"messages": value}, 5).messages[0].content
    assert len(text) >= length(value)


def test_thinking_and_results_of_tools_are_read_from_anthropics_blocks():
    body = {
        "model": "x",
        "max_tokens": 5,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "one"},
                    {"type": "text", "text": "and?"},
                ],
            },
        ],
    }
    request = Messages().read(body)
    assert request.thinking_tokens == 2000
    assert [turn.role for turn in request.messages] == ["user", "assistant", "tool", "user"]
    assert Messages().read({**body, "thinking": {"type": "disabled"}}).thinking_tokens == 0

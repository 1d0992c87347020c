"""Replies with something else in the place of a text, as servers send them."""

import pytest

from abreast.core.errors import ReplyBroken
from abreast.models.port import ToolCall
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.reply_draft import ReplyDraft, checked, count
from tests.models.serving import KEY, Recorded, ask, closing, events, serving

TOOL = {"name": "look", "description": "", "parameters": {"type": "object"}}


def test_a_number_as_an_id_and_an_object_as_arguments_are_taken():
    call = ToolCall(7, "look", {"at": 1})
    assert checked(ReplyDraft("a", (call,))).tool_calls == (ToolCall("7", "look", '{"at": 1}'),)


@pytest.mark.parametrize("call", [ToolCall("1", ["look"], ""), ToolCall("1", "look", [1])])
def test_a_tool_call_without_a_name_or_arguments_is_malformed(call):
    with pytest.raises(TypeError):
        checked(ReplyDraft("a", (call,)))


def test_a_text_that_is_no_text_is_malformed():
    with pytest.raises(TypeError):
        checked(ReplyDraft(["a"]))


def test_what_is_only_told_about_a_reply_is_left_out_if_it_is_no_text():
    draft = checked(ReplyDraft("a", model=["m"], id={"x": 1}, refusal={"why": "no"}))
    assert (draft.model, draft.id, draft.refusal) == ("", "", '{"why": "no"}')


def test_lone_surrogates_are_replaced_wherever_they_are():
    call = ToolCall("1", "lo\ud800ok", '{"a": "\udc00"}')
    draft = checked(ReplyDraft("\ud83d\ude00 \ud800", (call,), model="m\ud800"))
    texts = (draft.text, draft.model, draft.tool_calls[0].name, draft.tool_calls[0].arguments)
    assert texts == ("\U0001f600 \ufffd", "m\ufffd", "lo\ufffdok", '{"a": "\ufffd"}')


@pytest.mark.parametrize("given", [-1, True, 1.0, "3", None, 1 << 53])
def test_what_is_no_number_of_tokens_is_not_counted(given):
    assert count(given) is None


async def test_an_adapter_with_a_key_reads_a_reply_whose_id_is_a_list():
    message = {"role": "assistant", "content": "hello"}
    body = {"id": ["x"], "model": 3, "choices": [{"message": message, "finish_reason": "stop"}]}
    async with serving(Recorded(body)) as server:
        model = OpenAI("openai/m", f"{server.url}/v1", KEY)
        async with closing(model):
            reply = await model.complete(ask())
    assert (reply.text, reply.id, reply.model) == ("hello", "", "")


async def test_a_stream_with_a_tool_call_whose_name_is_a_list_is_broken():
    call = {"index": 0, "id": "t", "function": {"name": ["look"], "arguments": "{}"}}
    chunk = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    async with serving(events(chunk, done=True)) as server:
        model = OpenAI("openai/m", f"{server.url}/v1", KEY)
        async with closing(model):
            with pytest.raises(ReplyBroken):
                await model.complete(ask(tools=(TOOL,)), [].append)

"""The model with predefined replies."""

import asyncio

import pytest

from abreast.core.errors import ReplyInvalid, RequestRefused, ServerFault, Throttled
from abreast.models.port import Message, Model, Reply, Request
from abreast.models.scripted import Scripted
from abreast.testing import ManualClock, ScriptedModel
from tests.models.serving import ask


def test_it_is_a_model_and_users_have_it_under_testing():
    model: Model = Scripted({})
    assert model.name == "scripted/model"
    assert ScriptedModel is Scripted


async def test_a_mapping_answers_by_the_last_users_turn():
    model = Scripted({"2+2?": "4"}, name="scripted/sums")
    turns = (
        Message("user", "Hello"),
        Message("assistant", "Hi"),
        Message("user", "2+2?"),
        Message("assistant", "so"),
    )
    reply = await model.complete(Request(turns))
    assert (reply.text, reply.model, reply.finish) == ("4", "scripted/sums", "stop")
    assert reply.usage.requests == 1
    assert reply.usage.estimate
    assert reply.usage.usd is None
    assert [len(call.messages) for call in model.calls] == [4]


async def test_a_prompt_without_a_line_is_refused_or_gets_the_default():
    with pytest.raises(RequestRefused, match="scripted/model has no line for 'Hello'"):
        await Scripted({"x": "y"}).complete(ask())
    assert (await Scripted({"x": "y"}, default="z").complete(ask())).text == "z"
    with pytest.raises(RequestRefused):
        await Scripted({"Hello": []}).complete(ask())


async def test_several_lines_for_a_prompt_are_said_in_turn_and_the_last_one_stays():
    model = Scripted({"a": ["1", "2"], "b": "3"})
    said = [(await model.complete(ask(prompt))).text for prompt in "abaaba"]
    assert said == ["1", "3", "2", "2", "3", "2"]


async def test_a_list_has_a_line_for_each_call():
    model = Scripted(["1", "2"])
    assert [(await model.complete(ask())).text for _ in range(2)] == ["1", "2"]
    with pytest.raises(RequestRefused):
        await model.complete(ask())


async def test_a_function_is_given_the_request():
    model = Scripted(lambda request: f"{request.messages[0].content} at {request.temperature}")
    assert (await model.complete(ask("x", temperature=0.5))).text == "x at 0.5"


async def test_a_whole_reply_is_said_as_it_is():
    reply = Reply("x", finish="length")
    assert await Scripted([reply]).complete(ask()) is reply


async def test_errors_are_raised_each_time_anew():
    model = Scripted(
        {"a": [Throttled("wait", retry_after=3.0), ServerFault, "ok"], "b": ServerFault("down")}
    )
    with pytest.raises(Throttled) as caught:
        await model.complete(ask("a"))
    assert caught.value.retry_after == 3.0
    with pytest.raises(ServerFault, match="told to fail"):
        await model.complete(ask("a"))
    assert (await model.complete(ask("a"))).text == "ok"
    errors = []
    for _ in range(2):
        with pytest.raises(ServerFault, match="down") as caught:
            await model.complete(ask("b"))
        errors.append(caught.value)
    assert errors[0] is not errors[1]


async def test_a_schema_is_checked_as_of_any_model():
    model = Scripted(['{"n": 1}', "nonsense"])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert (await model.complete(ask(schema=schema))).value == {"n": 1}
    with pytest.raises(ReplyInvalid):
        await model.complete(ask(schema=schema))


@pytest.mark.parametrize("text", ["one two  three", "one", "", " x "])
async def test_it_is_heard_word_by_word(text):
    heard = []
    reply = await Scripted([text]).complete(ask(), heard.append)
    assert "".join(heard) == reply.text == text
    assert "" not in heard
    assert reply.first_token is not None


async def test_it_takes_the_time_of_its_clock_and_lines_go_by_the_order_of_calls():
    clock = ManualClock()
    model = Scripted(["1", "2"], latency=5.0, clock=clock)
    calls = [asyncio.create_task(model.complete(ask(f"{n}"))) for n in range(2)]
    await clock.advance(4.0)
    assert not any(call.done() for call in calls)
    await clock.advance(1.0)
    replies = [await call for call in calls]
    assert [(reply.text, reply.seconds) for reply in replies] == [("1", 5.0), ("2", 5.0)]
    await model.close()
    await model.close()


async def test_a_file_of_lines_is_a_script(tmp_path):
    path = tmp_path / "lines.jsonl"
    lines = [
        '{"prompt": "a", "reply": "1"}',
        "",
        '{"prompt": "a", "error": "Throttled", "message": "wait"}',
    ]
    path.write_text(
        "\n".join(
            [
                *lines,
                '{"prompt": "b", "reply": {"n": 1}}',
                '{"prompt": "c", "error": "ServerFault"}',
            ]
        )
    )
    model = Scripted(path)
    assert (await model.complete(ask("a"))).text == "1"
    with pytest.raises(Throttled, match="wait"):
        await model.complete(ask("a"))
    assert (await model.complete(ask("b"))).text == '{"n": 1}'
    with pytest.raises(ServerFault, match="line 5"):
        await model.complete(ask("c"))


@pytest.mark.parametrize(
    "line", ["nonsense", "[]", '{"prompt": "a"}', '{"prompt": "a", "error": "SystemExit"}', "7"]
)
def test_a_line_that_is_none_is_named(tmp_path, line):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"prompt": "a", "reply": "1"}\n' + line)
    with pytest.raises(ValueError, match=r"lines\.jsonl, line 2"):
        Scripted(path)


def test_a_text_is_no_script():
    with pytest.raises(ValueError, match="not a text"):
        Scripted("lines.jsonl")

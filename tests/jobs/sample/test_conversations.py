"""Samples that go on from a conversation, whatever the strategy, and judges that see it."""

import pytest

import abreast
from abreast.jobs.sample.spec import SampleSpec
from abreast.jobs.sample.strategies import MultiTurn, Repair
from abreast.models.media import MediaFile
from abreast.models.port import Message
from abreast.models.scripted import Scripted
from tests.jobs.sample.drawing import Table, at, passes
from tests.jobs.sample.test_corners import model_of
from tests.models.pictures import png

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Say."},
    {"role": "assistant", "content": "no"},
]
BEFORE = (Message("system", "Be brief."), Message("user", "Say."), Message("assistant", "no"))


@pytest.mark.parametrize("strategy", [None, Repair(), MultiTurn(), "vote"])
async def test_every_round_of_a_strategy_goes_on_from_the_conversation(strategy):
    table = Table(at((0, 1)))
    result = await abreast.sample(
        "Again.",
        messages=TALK,
        model=model_of(table),
        checks=[passes],
        depth=2,
        strategy=strategy,
    )
    first, second = (request.messages for request in table.requests)
    assert result.ok
    assert first == (*BEFORE, Message("user", "Again."))
    assert second[:3] == BEFORE
    assert "Again." in second[3].content


async def test_without_a_prompt_the_last_user_message_is_the_question():
    table = Table(at((0, 0)))
    asked = [*TALK, {"role": "user", "content": "Again."}]
    short = abreast.checks.words(most=9)
    await abreast.sample(messages=asked, model=model_of(table), checks=[short])
    (request,) = table.requests
    assert request.messages == (*BEFORE, Message("user", "Again. Use at most 9 words."))


@pytest.mark.parametrize(
    ("prompt", "messages", "says"),
    [
        (None, None, "there is nothing to ask"),
        (None, TALK, r"messages\[2\], the last, is of the assistant"),
        (None, [Message("tool", "4", tool_call_id="c")], r"messages\[0\], the last, is of a tool"),
        ("Say.", [{"role": "usr", "content": "x"}], r"messages\[0\].role must be one of"),
        ("", TALK, "the prompt is empty"),
    ],
)
async def test_a_wrong_conversation_is_refused_before_anything_is_drawn(prompt, messages, says):
    table = Table(at())
    with pytest.raises(ValueError, match=says):
        await abreast.sample(prompt, messages=messages, model=model_of(table))
    assert table.asked == []


async def test_a_judge_sees_the_conversation_and_the_files():
    judge = Scripted(lambda _: '{"reason": "", "meets": true}')
    image = MediaFile.of(png())
    await abreast.sample(
        "Again.",
        messages=TALK,
        files=[image],
        model=model_of(Table(at((0, 0)))),
        judge=judge,
        checks=["judge: is short"],
    )
    (asked,) = judge.calls[0].messages
    assert asked.files == (image,)
    assert asked.content.startswith("Task:\nSystem:\nBe brief.\n\nUser:\nSay.\n\nAssistant:\nno")
    assert "User:\nAgain.\n\nAnswer:\ngood 0.0" in asked.content


def test_a_job_file_and_a_manifest_hold_messages():
    spec = SampleSpec.of({"messages": TALK, "prompt": "Again."})
    assert SampleSpec.of(spec.plain()) == spec
    assert "messages" not in SampleSpec("Say").plain()
    made = spec.job(Table(at()), Table(at()), find=None, read=None)
    assert made.question.turns() == (*BEFORE, Message("user", "Again."))
    assert spec.seed != SampleSpec("Again.").seed
    with pytest.raises(ValueError, match=r"job: messages\[0\].role must be one of"):
        SampleSpec.of({"prompt": "x", "messages": [{"role": "me", "content": "x"}]}, "job")
    with pytest.raises(ValueError, match=r"job.messages must be a list of messages"):
        SampleSpec.of({"prompt": "x", "messages": "hello"}, "job")

"""`abreast map --messages`: conversations as lines, checked before they are sent."""

import json

import pytest

from tests.models.pictures import png

TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "name?"},
]
MODEL = ("-m", "scripted/replies.jsonl")


@pytest.fixture
def shell(abreast):
    lines = [{"prompt": "name?", "reply": "Bob"}, {"prompt": "Again, 7.", "reply": "Eve"}]
    (abreast.folder / "replies.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return abreast


def test_a_line_is_a_conversation_or_has_one_and_a_prompt_is_its_last_message(shell):
    lines = "\n".join(map(json.dumps, [TALK, {"messages": TALK, "id": 7}]))
    said = shell("map", "-q", "--messages", *MODEL, given=lines)
    assert (said.code, said.lines) == (0, ["Bob", "Bob"])
    line = json.dumps({"id": 7, "chat": TALK[:2]})
    said = shell(
        *("map", "-q", "--messages", "{.chat}", "--prompt", "Again, {.id}.", "--key", "{.id}"),
        *MODEL,
        given=line,
    )
    assert (said.code, said.lines) == (0, ["Eve"])
    dry = shell("map", "--messages", "--dry-run", "--json", *MODEL, given=lines).rows
    assert dry[0]["argv"][1] == "User:\nhi\n\nAssistant:\nhello\n\nUser:\nname?"


@pytest.mark.parametrize(
    ("options", "line", "says"),
    [
        (["--messages"], [{"role": "me", "content": "x"}], "line 1: messages[0].role must be one"),
        (["--messages"], [], "line 1: messages is empty"),
        (["--messages"], {"id": 3}, "line 1: it has no field .messages"),
        (["--messages", "{.chat}"], {"chat": 3}, "line 1: messages must be a list of messages"),
        (["--messages"], TALK[:2], "line 1: messages[1], the last, is of the assistant"),
        (["--messages", "chat"], TALK, "--messages: write {} or {.field}, not 'chat'"),
    ],
)
def test_a_wrong_conversation_is_told_with_its_line_and_position(shell, options, line, says):
    (shell.folder / "talk.jsonl").write_text(json.dumps(line))
    said = shell("map", "-a", "talk.jsonl", *options, *MODEL)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert shell("runs", "--json").rows == []  # it is seen before the run is made


def test_a_resumed_map_knows_the_files_of_a_conversation_by_content(shell):
    image = shell.folder / "a.png"
    image.write_bytes(png())
    parts = [{"type": "text", "text": "name?"}, {"image": "a.png"}]
    lines = [[{"role": "user", "content": parts}], [{"role": "user", "content": "unknown"}]]
    said = shell("map", "-q", "--messages", *MODEL, given="\n".join(map(json.dumps, lines)))
    assert (said.code, said.lines) == (1, ["Bob"])
    assert shell("retry", "-q", "last").code == 1
    image.write_bytes(png(9))
    said = shell("retry", "last")
    assert said.code == 2
    assert "the content of its images counts" in said.err


# --- one conversation, of ask and sample


def test_ask_and_sample_take_a_conversation_from_a_file(shell):
    (shell.folder / "whole.json").write_text(json.dumps(TALK))
    (shell.folder / "before.json").write_text(json.dumps({"messages": TALK[:2]}))
    for job in ("ask", "sample"):
        said = shell(job, "-q", "--messages", "whole.json", *MODEL)
        assert (said.code, said.lines) == (0, ["Bob"])
        said = shell(job, "-q", "--messages", "before.json", *MODEL, "Again, 7.")
        assert (said.code, said.lines) == (0, ["Eve"])
    sent = shell("show", "--json", "last").out
    assert "hello" in sent


@pytest.mark.parametrize("job", ["ask", "sample"])
@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("no", [], "--messages: talk.json is not JSON"),
        ("{}", [], "--messages: talk.json must have a list of messages in it"),
        (json.dumps(TALK[:2]), [], "--messages: messages[1], the last, is of the assistant"),
        (json.dumps(TALK), ["name?"], "messages[2] is the prompt, which would be sent twice"),
        (json.dumps(TALK), [" "], "the prompt is empty"),
        (None, [], "--messages: talk.json can't be read"),
    ],
)
def test_a_wrong_file_of_messages_is_told_before_anything_is_sent(shell, job, text, words, says):
    if text is not None:
        (shell.folder / "talk.json").write_text(text)
    said = shell(job, "--messages", "talk.json", *MODEL, *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert shell("runs", "--json").rows == []

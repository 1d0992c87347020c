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

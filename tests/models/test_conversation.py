"""Conversations as input: every form becomes the same messages, a wrong one names its place."""

import pytest

from abreast.assembly.names import as_caller
from abreast.models.conversation import (
    asked_text,
    conversation_text,
    make_conversation,
    read_messages,
)
from abreast.models.media import MediaFile
from abreast.models.port import Message, Reply, Request, ToolCall
from abreast.models.scripted import Scripted
from abreast.run.calls.journal import digest_of
from tests.models.pictures import pdf, png

IMAGE = MediaFile.of(png())
PAPER = MediaFile.of(pdf())
HELLO = Message("user", "hello")
HI = Message("assistant", "hi")
CALL = ToolCall("c1", "add", '{"a": 1}')


def test_mappings_and_messages_are_the_same_turns():
    given = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        HI,
    ]
    before = (Message("system", "Be brief."), HELLO, HI)
    assert make_conversation("and now?", given) == (*before, Message("user", "and now?"))
    assert make_conversation(None, [*given, HELLO]) == (*before, HELLO)
    assert make_conversation("hello") == (HELLO,)


def test_a_prompt_and_its_message_are_one_request():
    def digest(turns):
        return digest_of("openai/gpt-4o-mini", Request(turns))

    assert digest(make_conversation(None, [{"role": "user", "content": "hello"}])) == digest(
        (HELLO,)
    )
    assert digest((HELLO,)) == "1ef85146d4b9af2a"


@pytest.mark.parametrize(
    "part",
    [
        IMAGE,
        {"type": "image_url", "image_url": {"url": IMAGE.data_url()}},
        {"type": "input_image", "image_url": IMAGE.data_url()},
        {"type": "image", "source": {"type": "base64", "data": IMAGE.base64()}},
        {"image": "a.png"},
    ],
)
def test_parts_of_every_form_are_texts_and_files(part, tmp_path):
    (tmp_path / "a.png").write_bytes(IMAGE.content())
    content = [{"type": "text", "text": "What"}, part, "is it?"]
    (turn,) = read_messages([{"role": "user", "content": content}], str(tmp_path))
    assert (turn.content, turn.files) == ("What\nis it?", (IMAGE,))


def test_pdf_files_and_files_beside_the_content_are_kept():
    paper = {"type": "file", "file": {"filename": "p.pdf", "file_data": PAPER.data_url()}}
    (turn,) = read_messages([{"role": "user", "content": [paper], "files": [IMAGE]}])
    assert (turn.content, turn.files, turn.files[0].name) == ("", (PAPER, IMAGE), "p.pdf")
    asked = make_conversation(None, [HI, HELLO], [IMAGE])
    assert asked == (HI, Message("user", "hello", files=(IMAGE,)))


def test_tool_calls_and_their_results_go_in_as_the_providers_write_them():
    theirs = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        ],
    }
    result = {"role": "tool", "content": "1", "tool_call_id": "c1"}
    assert make_conversation(None, [HELLO, theirs, result])[1:] == (
        Message("assistant", "", (CALL,)),
        Message("tool", "1", tool_call_id="c1"),
    )


@pytest.mark.parametrize(
    ("prompt", "messages", "error", "says"),
    [
        (None, None, ValueError, "there is nothing to ask: give a prompt, or messages"),
        (["hello"], None, TypeError, "the prompt must be a text, not a list; give a conversation"),
        ("x", [], ValueError, "messages is empty"),
        ("x", "hello", TypeError, "messages must be a list of messages, not a text"),
        ("x", {"role": "user"}, TypeError, "messages must be a list of messages, not a mapping"),
        ("x", ["hello"], TypeError, "messages[0] must be a Message or a mapping with role and"),
        ("x", [HELLO, Reply("hi")], TypeError, "messages[1] must be a Message or a mapping"),
        ("x", [{"content": "a"}], ValueError, "messages[0] has no role; it is one of system, user"),
        ("x", [{"role": "usr", "content": "a"}], ValueError, "messages[0].role must be one of"),
        ("x", [{"role": 3, "content": "a"}], ValueError, "messages[0].role must be one of"),
        ("x", [{"role": "user"}], ValueError, "messages[0] has no content"),
        ("x", [{"role": "user", "content": 3}], TypeError, "messages[0].content must be a text or"),
        ("x", [Message("user", 3)], TypeError, "messages[0].content must be a text"),
        ("x", [{"role": "user", "content": " "}], ValueError, "messages[0] is empty"),
        (
            "x",
            [{"role": "user", "content": "a", "nmae": "b"}],
            ValueError,
            "messages[0] has 'nmae', which is no part of a message",
        ),
        (
            "x",
            [{"role": "user", "content": ["a", {"type": "audio"}]}],
            ValueError,
            "messages[0].content[1]: a part is a text",
        ),
        (
            "x",
            [{"role": "user", "content": [{"image_url": {"url": "https://x.org/a.png"}}]}],
            ValueError,
            "messages[0].content[0]: a file is given as a path or as a data: URL",
        ),
        (
            "x",
            [{"role": "user", "content": [{"image": "no/where.png"}]}],
            ValueError,
            "messages[0].content[0]: no/where.png can't be read",
        ),
        (
            "x",
            [{"role": "assistant", "content": "a", "tool_calls": [{"id": "c"}]}],
            ValueError,
            "messages[0].tool_calls[0] must have id, name and arguments",
        ),
        (
            "x",
            [{"role": "tool", "content": "4"}],
            ValueError,
            "messages[0] is the result of a tool",
        ),
        ("x", [Message("assistant", "a", files=(IMAGE,))], ValueError, "only a user message has"),
        ("x", [HELLO, Message("assistant", "", (CALL,))], ValueError, "messages[1] calls tools"),
        ("hello", [HI, HELLO], ValueError, "messages[1] is the prompt, which would be sent twice"),
        (None, [HELLO, HI], ValueError, "messages[1], the last, is of the assistant, and leaves"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_place(prompt, messages, error, says):
    with pytest.raises(error) as told:
        make_conversation(prompt, messages)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_two_system_prompts_contradict_each_other():
    with pytest.raises(ValueError, match=r"messages\[0\] is a system prompt beside system"):
        make_conversation("x", [Message("system", "Be brief.")], system="Be long.")


def test_a_conversation_as_one_text_names_who_speaks():
    assert conversation_text([HELLO]) == "hello"
    assert conversation_text([HELLO, HI]) == "User:\nhello\n\nAssistant:\nhi"


def test_what_is_asked_last_is_the_prompt_or_the_last_message():
    parts = [{"type": "text", "text": "What"}, {"image": "a.png"}, "is it?"]
    messages = [{"role": "user", "content": "hi"}, {"role": "user", "content": parts}]
    assert asked_text({"prompt": "x", "messages": messages}) == "x"
    assert asked_text({"prompt": None, "messages": messages}) == "What\nis it?"
    assert asked_text({}) == asked_text({"prompt": None, "messages": [3]}) == ""


async def test_a_model_is_asked_with_the_conversation(tmp_path):
    scripted = Scripted({"and now?": "later"})
    model = as_caller(scripted)
    turns = [{"role": "user", "content": [{"image": str(tmp_path / "a.png")}]}, HI]
    (tmp_path / "a.png").write_bytes(IMAGE.content())
    reply = await model.ask("and now?", messages=turns)
    assert reply.text == "later"
    (request,) = scripted.calls
    assert request.messages == (
        Message("user", "", files=(MediaFile.of(IMAGE.content()),)),
        HI,
        Message("user", "and now?"),
    )

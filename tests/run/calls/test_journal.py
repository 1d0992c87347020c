"""The texts of calls in a journal are those that stores have: a resumed run finds its replies."""

import pytest

from abreast.models.port import Message, Reply, Request, ToolCall
from abreast.run.calls.journal import digest_of, reply_text, request_text

CALL = ToolCall("1", "look", "{}")
PLAIN = Request((Message("user", "Hello"),))
FULL = Request(
    (
        Message("user", "Größe?"),
        Message("assistant", "", (CALL,)),
        Message("tool", "5", tool_call_id="1"),
    ),
    system="Be brief.",
    temperature=0.0,
    seed=0,
    stop=("END",),
    max_tokens=9,
    schema={"type": "object"},
    tools=({"name": "look", "parameters": {"type": "object"}},),
    extra={"n": 2},
    reasoning="low",
    thinking_tokens=0,
    tool_choice="look",
    shared_prefix=3,
)


@pytest.mark.parametrize(
    ("request_", "digest", "text"),
    [
        (PLAIN, "2a5093f8cffdf616", '[["user","Hello",5]]'),
        (
            FULL,
            "b5ce2cf49ea44285",
            '[["system","Be brief.",9],["user","Größe?",6],["assistant","",0],["tool","5",1]]',
        ),
    ],
)
def test_a_request_has_the_digest_and_the_text_that_it_always_had(request_, digest, text):
    assert digest_of("openai/m", request_) == digest
    assert request_text(request_, "here") == text


TINY = {"at": 1e-05}  # there are two ways to write it


@pytest.mark.parametrize(
    ("turn", "settings", "digest"),
    [
        ({}, {"temperature": 1e-05}, "8ced223458567c5b"),
        ({}, {"extra": TINY}, "2faadeabc501e883"),
        ({}, {"tools": (TINY,)}, "ff82c44769b89821"),
        ({"kept": (TINY,)}, {}, "7a51dca98ae3191b"),
    ],
)
def test_a_request_with_a_float_has_the_digest_that_it_always_had(turn, settings, digest):
    request = Request((Message("user", "Hello", **turn),), **settings)
    assert digest_of("openai/m", request) == digest


def test_a_reply_is_recorded_with_the_fields_that_it_has():
    assert reply_text(Reply("Hi"), "here") == '{"text":"Hi"}'
    full = Reply(
        "Hi",
        None,
        (CALL,),
        finish="length",
        model="m",
        id="7",
        changed=("without seed",),
        kept=({"a": 1},),
    )
    assert reply_text(full, "here") == (
        '{"text":"Hi","finish":"length","model":"m","id":"7","tool_calls":[["1","look","{}"]],'
        '"changed":["without seed"],"kept":[{"a":1}]}'
    )

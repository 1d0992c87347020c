"""The specification of a sample: the values of each key, and the messages for invalid ones."""

import pytest

from abreast.jobs.sample.check_texts import parse_check
from abreast.jobs.sample.spec import SampleSpec


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({}, "a sample needs a prompt, which is a text"),
        ({"prompt": 3}, "a sample needs a prompt, which is a text"),
        ({"bredth": 3}, "there is no 'bredth' in a sample; did you mean breadth?"),
        ({3: 4}, "there is no 3 in a sample; there are prompt, model"),
        ({"breadth": "3"}, "job: sample.breadth must be a whole number of at least 1, not '3'"),
        ({"breadth": True}, "sample.breadth must be a whole number"),
        ({"depth": 1.5}, "sample.depth must be a whole number"),
        ({"checks": "json"}, "sample.checks must be a list of texts, such as 'max-words 20'"),
        ({"checks": 3}, "sample.checks must be a list of texts"),
        ({"checks": [3]}, "sample.checks must be a list of texts"),
        ({"model": 3}, "sample.model must be a text"),
        ({"judge": ["x"]}, "sample.judge must be a text"),
        ({"strategy": 3}, "sample.strategy must be a text"),
        ({"pick": True}, "sample.pick must be ordered or first"),
        ({"system": 3}, "sample.system must be a text"),
        ({"schema": "x.json"}, "sample.schema must be a JSON schema"),
        ({"temperature": "hot"}, "sample.temperature must be a number of at least 0"),
        ({"temperature": float("nan")}, "sample.temperature must be a number of at least 0"),
        ({"temperature": -1}, "sample.temperature must be a number of at least 0"),
        ({"max_tokens": 0}, "sample.max_tokens must be a whole number of at least 1"),
        ({"budget": 3}, "sample.budget must be a text such as 50req"),
        ({"explain": 3}, "sample.explain must be true or false"),
        ({"system": ["x" * 1000]}, "sample.system must be a text, not ['xxx"),
    ],
)
def test_a_word_with_something_that_it_does_not_take_is_named(facts, says):
    given = {"prompt": "Say", **facts} if facts else facts
    with pytest.raises(ValueError, match=r"^job: ") as told:
        SampleSpec.of(given, "job: sample")
    assert says in str(told.value)
    assert len(str(told.value)) < 250


def test_what_a_manifest_keeps_is_the_same_sample_again():
    spec = SampleSpec(
        "Say", checks=("json",), breadth=4, temperature=0.5, schema={"type": "object"}, explain=True
    )
    assert SampleSpec.of(spec.plain()) == spec
    assert SampleSpec.of(SampleSpec("Say").plain()) == SampleSpec("Say")


def test_hidden_in_front_keeps_a_check_from_the_model():
    nothing = {"find": None, "read": None}
    assert parse_check("max-words 5", None, **nothing).shown == "Use at most 5 words."
    assert parse_check("hidden max-words 5", None, **nothing).shown is None
    assert parse_check("hidden judge: is kind", None, **nothing).shown is None
    assert parse_check("judge: is kind", None, **nothing).requirement == "is kind"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no check ''; there are json, regex"),
        ("xyzzy 3", "there is no check 'xyzzy'; there are json, regex"),
        ("regex", "the check 'regex' needs something after it, such as 'regex ^(red|blue)$'"),
        ("contains  ", "the check 'contains' needs something after it, such as 'contains rain'"),
        ("lines three", "'lines three' needs a whole number of at least 1"),
        ("max-words -1", "'max-words -1' needs a whole number of at least 1"),
        ("min-words 1e3", "'min-words 1e3' needs a whole number of at least 1"),
        ("max-words 99999999999", "'max-words 99999999999' needs a whole number of at least 1"),
        ("hidden jsn", "there is no check 'jsn'; did you mean 'json'?"),
        ("hidden", "the check 'hidden' needs a check after it"),
        ("judge:  ", "a judge needs something to judge"),
        ("schema", "the check 'schema' needs something after it, such as 'schema label.json'"),
        ("call", "the check 'call' needs something after it, such as 'call pkg.mod:fn'"),
    ],
)
def test_a_check_that_there_is_not_or_that_lacks_something_is_named(text, says):
    with pytest.raises(ValueError, match=r"^there is|^the check|^a judge|^'") as told:
        parse_check(text, None, find=None, read=None)
    assert says in str(told.value)

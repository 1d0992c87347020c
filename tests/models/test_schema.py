"""Schemas: read from users, converted for providers, and checked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from abreast.core.errors import ReplyInvalid
from abreast.models import schema as schemas
from abreast.models.schema import boxed, check_schema, parse, schema_of, strict, unboxed

ITEMS = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number"}}},
        }
    },
    "required": ["items"],
}


class Part(BaseModel):
    name: str
    size: int = 3


class Whole(BaseModel):
    parts: list[Part]
    note: str | None = None


class Node(BaseModel):
    children: list["Node"] = []


# --- given


def test_a_schema_is_itself_and_a_pydantic_model_has_one():
    assert schema_of(ITEMS) is ITEMS
    assert schema_of(Whole)["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}


@pytest.mark.parametrize("given", [7, "object", None, Part(name="x").name, int])
def test_what_is_no_schema_is_refused(given):
    with pytest.raises(ValueError, match="a schema is a mapping or a pydantic model"):
        schema_of(given)


@pytest.mark.parametrize(
    "wrong", [{"type": "nonsense"}, {"$ref": "#/$defs/nowhere"}, {"type": "string", "pattern": "("}]
)
def test_a_schema_that_can_not_be_used_is_refused_before_any_call(wrong):
    with pytest.raises(ValueError, match="the schema can't be used"):
        check_schema(wrong)


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9/x.json", "https://example.com/x", "file:///etc/passwd", "x.json"],
)
def test_nothing_is_fetched_for_a_schema(address):
    with pytest.raises(ValueError, match="is not fetched"):
        check_schema({"$ref": address})


# --- checked


@pytest.mark.parametrize(
    "text",
    [
        '{"items": []}',
        ' {"items": []}\n',
        '```json\n{"items": []}\n```',
        '```\n{"items": []}\n```\n',
        '\n```JSON \n{"items":\n[]}```',
    ],
)
def test_json_may_stand_in_a_fence(text):
    assert parse(text, ITEMS) == {"items": []}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"items": [{}, {}, {"price": "3"}]}', "$.items[2].price must be number"),
        ("{}", "$ must contain ['items'] properties"),
        ("[]", "$ must be object"),
        ('{"items": 7}', "$.items must be array"),
    ],
)
def test_what_does_not_obey_is_told_with_its_place(text, place):
    with pytest.raises(ReplyInvalid) as caught:
        parse(text, ITEMS, who="the reply of lane/model")
    assert str(caught.value) == f"the reply of lane/model does not obey the schema: {place}"
    assert caught.value.raw == text
    assert caught.value.details["raw"] == text


@pytest.mark.parametrize(
    "text",
    ["", "Sure! {}", "{", '{"items": [NaN]}', '{"items": Infinity}', "[" * 100_000, "1" * 5000],
)
def test_what_is_no_json_is_invalid_and_kept(text):
    with pytest.raises(ReplyInvalid, match="the reply is no JSON") as caught:
        parse(text, ITEMS)
    assert caught.value.raw == text


def test_secrets_are_taken_out_of_what_is_kept():
    with pytest.raises(ReplyInvalid) as caught:
        parse('{"items": "secret"}', ITEMS, clean=lambda text: text.replace("secret", "***"))
    assert caught.value.raw == '{"items": "***"}'


def test_a_value_is_not_completed_with_defaults():
    assert parse('{"parts": [{"name": "a"}]}', schema_of(Whole)) == {"parts": [{"name": "a"}]}


def test_a_recursive_schema_is_checked_to_its_depth():
    deep = json.loads('{"children": [{"children": [{"children": 7}]}]}')
    with pytest.raises(ReplyInvalid, match=r"children\[0\]\.children\[0\]\.children must be array"):
        parse(json.dumps(deep), schema_of(Node))


def test_a_schema_is_compiled_once(monkeypatch):
    import fastjsonschema

    compiled = []
    real = fastjsonschema.compile
    monkeypatch.setattr(
        fastjsonschema, "compile", lambda *a, **k: compiled.append(1) or real(*a, **k)
    )
    schemas._checker.cache_clear()
    for _ in range(5):
        parse(
            '{"items": []}', json.loads(json.dumps(ITEMS))
        )  # another dict each time, the same schema
    assert len(compiled) == 1


# --- forms for providers


def test_the_strict_form_requires_all_and_allows_nothing_more():
    before = json.dumps(schema_of(Whole))
    form = strict(schema_of(Whole))
    assert json.dumps(schema_of(Whole)) == before
    assert (form["required"], form["additionalProperties"]) == (["parts", "note"], False)
    part = form["$defs"]["Part"]
    assert (part["required"], part["additionalProperties"]) == (["name", "size"], False)
    assert "default" not in json.dumps(form)


@pytest.mark.parametrize(
    "loose",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {"oneOf": []}}},
        {"type": "array", "items": {"type": ["object", "null"]}},
        {"type": "array", "items": True},
        {"allOf": [ITEMS]},
    ],
)
def test_a_schema_that_allows_anything_has_no_strict_form(loose):
    assert strict(loose) is None


leaves = st.sampled_from(
    [{"type": "integer"}, {"type": "string", "default": "x"}, {"type": "null"}, {"enum": ["a", 1]}]
)
nested = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items, "minItems": 1}, inner)
        | st.builds(
            lambda properties: {"type": "object", "properties": properties},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        )
        | st.builds(lambda choices: {"anyOf": choices}, st.lists(inner, min_size=1, max_size=2))
    ),
)


@given(nested)
def test_a_value_of_the_strict_form_obeys_the_schema_that_it_was_made_from(schema):
    from abreast.testing.storm.dialects.replies import instance

    value = json.dumps(instance(strict(schema)))
    parse(value, strict(schema))
    parse(value, schema)


@given(nested)
def test_what_goes_into_a_box_comes_out_of_it(schema):
    from abreast.testing.storm.dialects.replies import instance

    box = boxed(schema)
    assert box.schema["type"] == "object"
    value = instance(schema)
    text = json.dumps({"value": value} if box.boxed else value)
    parse(text, box.schema)
    assert parse(unboxed(text, schema), schema) == value


def test_definitions_stay_where_they_are_looked_for():
    schema = schema_of(Node)
    box = boxed(schema)
    assert box.boxed
    assert box.schema["$defs"] == schema["$defs"]
    parse('{"value": {"children": []}}', box.schema)
    strict(box.schema)
    check_schema(strict(box.schema))


def test_a_box_that_is_not_there_is_left_for_the_check_to_tell():
    assert unboxed("[1]", {"type": "array"}) == "[1]"
    assert unboxed("no json", {"type": "array"}) == "no json"

"""Schemas: read from users, converted for providers, and checked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

import abreast
from abreast.core.errors import ReplyInvalid
from abreast.jobs.sample.arguments import make_job
from abreast.models import schema as schemas
from abreast.models.lanes import read_lanes
from abreast.models.schema import boxed, check_schema, parse, schema_of, strict, unboxed
from tests.models.serving import Recorded, serving

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
    ("wrong", "said"),
    [
        ({"type": "nonsense"}, '$.type must be one of ["array", "boolean"'),
        ({"properties": {"a": {"type": 7}}}, "$.properties.a.type must be"),
        ({"properties": []}, "$.properties must be object"),
        ({"minimum": "3"}, "$.minimum must be number"),
        ({"required": "a"}, "$.required must be array"),
        ({"$ref": "#/$defs/nowhere"}, "/$defs/nowhere"),
        ({"$dynamicRef": "#nowhere"}, "nowhere"),
        ({"type": "string", "pattern": "("}, "$.pattern must be regex"),
        ({"$schema": "urn:none"}, "urn:none"),
        ({"$schema": 3}, '$["$schema"] must be string'),
        ({"prefixItems": {}}, "$.prefixItems must be array"),
        ({"unevaluatedProperties": 3}, "$.unevaluatedProperties must be"),
    ],
)
def test_a_schema_that_can_not_be_used_is_refused_before_any_call(wrong, said):
    with pytest.raises(ValueError, match="the schema can't be used: ") as caught:
        check_schema(wrong)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"items": [{"type": "integer"}], "additionalItems": False}, "[1]", "[1, 2]"),
        ({"definitions": {"n": {"type": "integer"}}, "$ref": "#/definitions/n"}, "1", '"1"'),
        ({"dependencies": {"a": ["b"]}, "items": [{}]}, '{"b": 1}', '{"a": 1}'),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "minimum": 1,
                "exclusiveMinimum": True,
            },
            "2",
            "1",
        ),
    ],
)
def test_schemas_of_earlier_drafts_are_checked_by_their_own_rules(schema, good, bad):
    parse(good, schema)
    with pytest.raises(ReplyInvalid):
        parse(bad, schema)


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
    import jsonschema_rs

    compiled = []
    real = jsonschema_rs.validator_for
    monkeypatch.setattr(
        jsonschema_rs, "validator_for", lambda *a, **k: compiled.append(1) or real(*a, **k)
    )
    schemas._checker.cache_clear()
    for _ in range(5):
        parse(
            '{"items": []}', json.loads(json.dumps(ITEMS))
        )  # another dict each time, the same schema
    assert len(compiled) == 1


def is_kind(value, kind):
    return isinstance(value, kind) and not isinstance(value, bool)


def each(value, kind):
    return value if isinstance(value, kind) else kind()


UNEVALUATED = {
    "allOf": [{"properties": {"a": {"type": "integer"}}}],
    "anyOf": [{"required": ["b"], "properties": {"b": True}}, True],
    "unevaluatedProperties": False,
}
TREE = {
    "$id": "https://example.com/tree",
    "$dynamicAnchor": "node",
    "type": "array",
    "items": {"anyOf": [{"$dynamicRef": "#node"}, {"type": "integer"}]},
}


def is_tree(value):
    return isinstance(value, list) and all(is_tree(one) or is_kind(one, int) for one in value)


# What fastjsonschema ignored among them, it let pass.
FEATURES = {
    "prefixItems": (
        {"prefixItems": [{"type": "integer"}, {"type": "string"}]},
        lambda value: all(map(is_kind, each(value, list), (int, str))),
    ),
    "items after prefixItems": (
        {"prefixItems": [True], "items": False},
        lambda value: len(each(value, list)) <= 1,
    ),
    "unevaluatedItems": (
        {"anyOf": [{"prefixItems": [{"type": "null"}]}, True], "unevaluatedItems": False},
        lambda value: each(value, list) in ([], [None]),
    ),
    "unevaluatedProperties": (
        UNEVALUATED,
        lambda value: (
            each(value, dict).keys() <= {"a", "b"}
            and ("a" not in each(value, dict) or is_kind(value["a"], int))
        ),
    ),
    "dependentRequired": (
        {"dependentRequired": {"a": ["b"]}},
        lambda value: "a" not in each(value, dict) or "b" in value,
    ),
    "dependentSchemas": (
        {"dependentSchemas": {"a": {"maxProperties": 1}}},
        lambda value: "a" not in each(value, dict) or len(value) == 1,
    ),
    "minContains": (
        {"contains": {"type": "string"}, "minContains": 1, "maxContains": 2},
        lambda value: (
            not isinstance(value, list) or 1 <= sum(is_kind(one, str) for one in value) <= 2
        ),
    ),
    "if": (
        {
            "if": {"type": "array"},
            "then": {"maxItems": 1},
            "else": {"type": ["object", "null"]},
        },
        lambda value: (
            len(value) <= 1 if isinstance(value, list) else value is None or type(value) is dict
        ),
    ),
    "$dynamicRef": (TREE, is_tree),
    "not": ({"not": {"type": ["array", "null"]}}, lambda value: not isinstance(value, list | None)),
    "propertyNames": (
        {"propertyNames": {"enum": ["a", "b"]}},
        lambda value: each(value, dict).keys() <= {"a", "b"},
    ),
}
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("feature", FEATURES)
@given(value=values)
def test_every_feature_of_draft_2020_12_is_checked(feature, value):
    schema, obeys = FEATURES[feature]
    text = json.dumps(value)
    if obeys(value):
        assert parse(text, schema) == value
    else:
        with pytest.raises(ReplyInvalid, match=r"does not obey the schema: \$") as caught:
            parse(text, schema)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ({"required": ["a", "b"]}, "{}", "$ must contain ['a', 'b'] properties"),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            '{"a b": 1}',
            "$ must not contain ['a b'] properties",
        ),
        (
            {"additionalProperties": False},
            '{"a": 1}',
            "$ must not contain properties that the schema does not name",
        ),
        ({"properties": {"a": False}}, '{"a": 1}', "$.a must not be there"),
        (
            {"properties": {"a b": {"type": ["integer", "null"]}}},
            '{"a b": "x"}',
            '$["a b"] must be null or integer',
        ),
        ({"enum": ["x", 1]}, "2", '$ must be one of ["x", 1]'),
        ({"const": "x"}, "2", '$ must be "x"'),
        ({"minimum": 3}, "2", "$ must be at least 3"),
        ({"exclusiveMaximum": 2}, "2", "$ must be less than 2"),
        ({"minLength": 2}, '"x"', "$ must have at least 2 characters"),
        ({"maxItems": 0}, "[1]", "$ must have at most 0 items"),
        ({"uniqueItems": True}, "[1, 1]", "$ must not have an item twice"),
        ({"pattern": "^a"}, '"b"', '$ must match pattern "^a"'),
        ({"format": "date"}, '"soon"', "$ must be date"),
        ({"multipleOf": 2}, "3", "$ must be a multiple of 2"),
        (
            {
                "anyOf": [
                    {"type": "null"},
                    {"type": "object", "properties": {"x": {"type": "integer"}}},
                ]
            },
            '{"x": "1"}',
            "$.x must be integer",
        ),
        ({"oneOf": [{"type": "null"}, {"enum": [3]}]}, "4", "$ must be one of [3]"),
    ],
)
def test_a_fault_says_what_must_be_there(schema, text, said):
    with pytest.raises(ReplyInvalid) as caught:
        parse(text, schema)
    assert str(caught.value) == f"the reply does not obey the schema: {said}"


@pytest.mark.parametrize(
    ("depth", "said"), [(128, "must be object"), (129, "nested too deeply"), (400, "too deeply")]
)
def test_a_value_is_checked_to_a_depth_that_no_stack_minds(depth, said):
    text = '{"children": [' * depth + "7" + "]}" * depth
    with pytest.raises(ReplyInvalid, match=said):
        parse(text, schema_of(Node))
    flat = json.dumps({"children": [{}] * depth * 3})
    parse(flat, schema_of(Node))


def test_a_schema_that_is_nested_too_deeply_is_refused():
    schema = {"type": "integer"}
    for _ in range(300):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="it is nested too deeply"):
        check_schema(schema)


def test_half_of_a_character_in_a_name_is_told():
    with pytest.raises(ReplyInvalid, match="half of a character"):
        parse('{"\\ud800": 1}', {"additionalProperties": False})


# --- pydantic


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def even(cls, number):
        if number % 2:
            raise ValueError("an odd number")
        return number


async def test_the_rules_of_a_pydantic_model_itself_are_checked():
    even, odd = (Recorded(completion(f'{{"number": {number}}}')) for number in (2, 3))
    async with serving(even, odd) as server:
        lanes = read_lanes({"mine": {"base_url": server.url}}, "here")
        async with abreast.open_model("mine/m", lanes=lanes) as model:
            assert (await model.ask("Go", schema=Even)).value == Even(number=2)
            with pytest.raises(ReplyInvalid) as caught:
                await model.ask("Go", schema=Even)
    assert str(caught.value) == (
        "the reply of mine/m does not obey Even: $.number: Value error, an odd number"
    )
    assert caught.value.raw == '{"number": 3}'


async def test_a_sample_repairs_what_a_pydantic_model_refuses():
    odd, even = (Recorded(completion(f'{{"number": {number}}}')) for number in (3, 2))
    async with serving(odd, even) as server:
        lanes = read_lanes({"mine": {"base_url": server.url}}, "here")
        async with abreast.open_model("mine/m", lanes=lanes) as model:
            async with abreast.open_run("r") as run:
                job = make_job("Go", model, schema=Even, breadth=1, depth=2, strategy="repair")
                result = await job.run(run)
    assert result.value == Even(number=2)
    assert "an odd number" in json.dumps(server.bodies[1])


def completion(text):
    return {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }


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

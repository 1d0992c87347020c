"""JSON schemas of replies: read from users, converted for providers, and checked."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeGuard, cast

from abreast.core.errors import ReplyInvalid
from abreast.models.port import Json, Reply
from abreast.models.schema_faults import fault_text, place_text

if TYPE_CHECKING:
    import jsonschema_rs

# The property that holds the value where a provider requires an object and it is none.
BOX = "value"
# Levels of a value or a schema. The validator recurses without a bound of its own: at twice as
# many, the smallest stack of a thread (512 KB) would overflow, and end the process.
_DEEPEST = 256
_TOO_DEEP = "$ is nested too deeply"
_FENCED = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_encode = json.JSONEncoder(separators=(",", ":")).encode
_encode_value = json.JSONEncoder(ensure_ascii=False).encode


def schema_of(given: object) -> Mapping[str, Json]:
    """The JSON schema of a schema itself, or of a pydantic model's class.

    Raises ValueError for anything else.

    >>> schema_of({"type": "integer"})
    {'type': 'integer'}
    """
    make = getattr(given, "model_json_schema", None)
    schema = make() if callable(make) else given
    if not isinstance(schema, Mapping):
        raise ValueError(
            f"a schema is a mapping or a pydantic model's class, not {type(given).__name__}"
        )
    check_schema(schema)
    return schema


def check_schema(schema: Mapping[str, Json]) -> None:
    """Raise ValueError with the reason if replies can't be checked by this schema."""
    _checker(_encode(schema))


def parse(
    text: str,
    schema: Mapping[str, Json],
    *,
    who: str = "the reply",
    clean: Callable[[str], str] = str,
) -> Json:
    r"""Parse a JSON text and check its value; a fence of ```json around it is allowed.

    Raises ReplyInvalid with the place, as in `$.items[2].price must be number`. `clean` removes
    secrets from the text that the error keeps.

    >>> parse('```json\n[1, 2]\n```', {"type": "array", "items": {"type": "integer"}})
    [1, 2]
    """
    fenced = _FENCED.fullmatch(text)
    try:
        value: Json = json.loads(fenced[1] if fenced else text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        where = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise ReplyInvalid(f"{who} is no JSON: {clean(where)}", raw=clean(text)) from None
    if text.count("[") + text.count("{") > _DEEPEST and is_deeper(value):
        fault: str | None = _TOO_DEEP
    else:
        fault = _checker(_encode(schema))(value)
    if fault is not None:
        raise ReplyInvalid(f"{who} does not obey the schema: {clean(fault)}", raw=clean(text))
    return value


def as_model(given: object, reply: Reply, who: str) -> Any:  # noqa: ANN401 - an instance of `given`
    """The reply's value as an instance of `given`, if that is a pydantic model's class.

    Raises ReplyInvalid if the model refuses it: it may have rules that its JSON schema can't
    express. With any other schema, the value as it is.
    """
    validate = getattr(given, "model_validate_json", None)
    if validate is None:
        return reply.value
    try:
        return validate(_encode_value(reply.value))
    except ValueError as error:
        faults = cast("Any", error).errors() if hasattr(error, "errors") else []
        first = faults[0] if faults else {"loc": (), "msg": str(error)}
        what = f"{place_text(first['loc'])}: {' '.join(str(first['msg']).split())}"
        invalid = ReplyInvalid(f"{who} does not obey {_name(given)}: {what}", raw=reply.text)
        invalid.usage = reply.usage
        raise invalid from None


def _name(given: object) -> str:
    return str(getattr(given, "__name__", "the model"))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


@lru_cache(maxsize=64)
def _checker(written: str) -> Callable[[Json], str | None]:
    """A function that returns what is wrong with a value, or None.

    It is cached, as the compilation takes much longer than a check.
    """
    check = _compiled(json.loads(written))

    def fault(value: Json) -> str | None:
        try:
            return None if check.is_valid(value) else fault_text(list(check.iter_errors(value)))
        except UnicodeEncodeError:
            return "$ has a name with half of a character in it"

    return fault


def is_deeper(value: object, most: int = _DEEPEST) -> bool:
    """Whether a value is nested more deeply than it can be checked, or than `most`."""
    level = [value]
    for _ in range(most + 1):
        insides = [
            one.values() if isinstance(one, dict) else one for one in level if _has_parts(one)
        ]
        level = [part for inside in insides for part in inside]
        if not level:
            return False
    return True


def _has_parts(value: object) -> TypeGuard[dict[str, Any] | list[Any]]:
    return isinstance(value, (dict, list))


def _compiled(schema: dict[str, Any]) -> "jsonschema_rs.Validator":
    """The validator, by the draft that a schema names, else by 2020-12.

    A list of schemas as `items` is of draft 7. Raises ValueError with the reason if the schema
    itself is wrong.
    """
    import jsonschema_rs

    if is_deeper(schema):
        raise ValueError("the schema can't be used: it is nested too deeply")
    try:
        return jsonschema_rs.validator_for(schema, **_OPTIONS)
    except jsonschema_rs.ValidationError as error:
        fault = error
    if (
        "$schema" not in schema
        and fault.instance_path[-1:] == ["items"]
        and isinstance(fault.instance, list)
    ):
        with suppress(jsonschema_rs.ValidationError):
            return jsonschema_rs.Draft7Validator(schema, **_OPTIONS)
    if unfetched := _NOT_FETCHED.match(fault.message):
        what = f"{unfetched[1]} is not fetched: put what it names under $defs"
    elif isinstance(fault.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        what = fault.message
    else:
        what = fault_text([fault])
    raise ValueError(f"the schema can't be used: {' '.join(what.split())}")


def _refuse_ref(address: str) -> NoReturn:
    raise ValueError(f"{address} is not fetched")


# Without the retriever, a $ref to another document would be fetched in the middle of a call.
_OPTIONS: dict[str, Any] = {"validate_formats": True, "retriever": _refuse_ref}
_NOT_FETCHED = re.compile(r"Resource '([^']*)' is not present in a registry")


# --- forms for providers


class Boxed(NamedTuple):
    """A schema of an object. If `boxed`, the value is in its property `BOX`."""

    schema: Mapping[str, Any]
    boxed: bool


def boxed(schema: Mapping[str, Any]) -> Boxed:
    """The schema itself if it is of an object, else one of an object that contains it."""
    if schema.get("type") == "object" or '"$ref":"#"' in _encode(schema):
        return Boxed(schema, boxed=False)
    inner = {key: value for key, value in schema.items() if key not in _ROOT_KEYWORDS}
    shared = {key: schema[key] for key in _ROOT_KEYWORDS if key in schema}
    outer = {
        "type": "object",
        "properties": {BOX: inner},
        "required": [BOX],
        "additionalProperties": False,
    }
    return Boxed(outer | shared, boxed=True)


def unboxed(text: str, schema: Mapping[str, Any]) -> str:
    """The text of a value by this schema, extracted from its object if it was boxed."""
    if not boxed(schema).boxed:
        return text
    try:
        return _encode_value(json.loads(text)[BOX])
    except (ValueError, LookupError, TypeError):
        return text  # unchanged: the check reports the fault


_ROOT_KEYWORDS = ("$defs", "definitions", "$schema")
_NOT_STRICT_KEYWORDS = (
    "allOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "propertyNames",
)


def strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The form that OpenAI calls strict: no additional properties, all required.

    A value that obeys it obeys the original schema too. None for a schema without such a form.
    """
    try:
        return cast("dict[str, Any]", _strict(schema))
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    pass


def _strict(schema: object) -> object:
    if not isinstance(schema, Mapping) or any(key in schema for key in _NOT_STRICT_KEYWORDS):
        raise _NotStrictError
    if "$ref" in schema:
        alone = {"$ref": schema["$ref"]}  # no other keyword is allowed, except definitions
        return alone | {
            key: _strict_each(schema[key])
            for key in _ROOT_KEYWORDS
            if isinstance(schema.get(key), Mapping)
        }
    result = {key: value for key, value in schema.items() if key not in {"default", "$schema"}}
    for key in ("properties", "$defs", "definitions"):
        if key in result:
            result[key] = _strict_each(result[key])
    if "items" in result:
        result["items"] = _strict(result["items"])
    if "anyOf" in result:
        result["anyOf"] = [_strict(choice) for choice in result["anyOf"]]
    if "object" in (kind if isinstance(kind := result.get("type"), list) else [kind]):
        if "properties" not in result or result.get("additionalProperties"):
            raise _NotStrictError
        result |= {"required": list(result["properties"]), "additionalProperties": False}
    return result


def _strict_each(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _strict(schema) for name, schema in schemas.items()}


def without_bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A strict schema whose bounds on values are said in its descriptions instead.

    Some providers refuse them; the check of the reply keeps them.

    >>> without_bounds({"type": "string", "maxLength": 3})
    {'type': 'string', 'description': 'maxLength: 3'}
    >>> without_bounds({"type": "integer", "minimum": 1, "maximum": 3})
    {'type': 'integer', 'enum': [1, 2, 3]}
    """
    few = _few_integers(schema)
    if few is not None:
        rest = {key: value for key, value in schema.items() if key not in _BOUNDS}
        return rest | {"enum": few}
    result: dict[str, Any] = {}
    said = [schema["description"]] if "description" in schema else []
    for key, value in schema.items():
        if key in _BOUNDS and not (key == "minItems" and value in (0, 1)):
            said.append(f"{key}: {value}")
        elif key in ("properties", "$defs", "definitions"):
            result[key] = {name: without_bounds(part) for name, part in value.items()}
        elif key == "items":
            result[key] = without_bounds(value)
        elif key == "anyOf":
            result[key] = [without_bounds(part) for part in value]
        else:
            result[key] = value
    return result | ({"description": ", ".join(said)} if said else {})


_FEW = 64  # integers that are listed one by one


def _few_integers(schema: Mapping[str, Any]) -> list[int] | None:
    """The integers of a schema whose bounds leave only a few; None for others."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") != "integer" or "enum" in schema or "multipleOf" in schema:
        return None
    if type(low) is not int or type(high) is not int or not 0 <= high - low < _FEW:
        return None
    if "exclusiveMinimum" in schema or "exclusiveMaximum" in schema:
        return None
    return list(range(low, high + 1))


_BOUNDS = frozenset(
    {
        *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)

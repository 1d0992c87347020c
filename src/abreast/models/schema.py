"""The schema that a reply must obey: taken from what users give, put into the form providers want, and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, cast

from abreast.core.errors import ReplyInvalid
from abreast.models.port import Json

BOX = "value"
"""Where providers want an object and the schema is of something else, it is put into one, under this name."""
_FENCED = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_write = json.JSONEncoder(separators=(",", ":")).encode
_unbox = json.JSONEncoder(ensure_ascii=False).encode


def schema_of(given: object) -> Mapping[str, Json]:
    """The JSON schema of what was given: a schema itself, or a pydantic model's class.

    ValueError for neither.

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
    """Nothing, if replies can be checked by this schema; else a ValueError that says why not."""
    _checker(_write(schema))


def parse(
    text: str,
    schema: Mapping[str, Json],
    *,
    who: str = "the reply",
    clean: Callable[[str], str] = str,
) -> Json:
    r"""The value that a text is, checked; a fence of ```json around it is allowed.

    ReplyInvalid with the place, as in `$.items[2].price must be number`. `clean` takes secrets out
    of what is kept.

    >>> parse('```json\n{"n": 1}\n```', {"type": "object", "properties": {"n": {"type": "integer"}}})
    {'n': 1}
    """
    fenced = _FENCED.fullmatch(text)
    try:
        value: Json = json.loads(fenced[1] if fenced else text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        where = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise ReplyInvalid(f"{who} is no JSON: {clean(where)}", raw=clean(text)) from None
    wrong = _checker(_write(schema))(value)
    if wrong is not None:
        raise ReplyInvalid(f"{who} does not obey the schema: {clean(wrong)}", raw=clean(text))
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


@lru_cache(maxsize=64)
def _checker(written: str) -> Callable[[Json], str | None]:
    """What is wrong with a value, or None.

    Compiled once: that takes a thousand times as long as a check.
    """
    import fastjsonschema

    schema = json.loads(written)
    try:
        check = fastjsonschema.compile(schema, handlers=_NOWHERE, use_default=False)
    except Exception as error:  # noqa: BLE001 - it raises whatever the schema makes it stumble over
        raise ValueError(f"the schema can't be used: {' '.join(str(error).split())}") from None

    def wrong(value: Json) -> str | None:
        try:
            check(value)
        except fastjsonschema.JsonSchemaValueException as error:
            message = str(error.message)
            return "$" + message.removeprefix("data") if message.startswith("data") else message
        except RecursionError:
            return "$ is nested too deeply"
        return None

    return wrong


def _nowhere(address: str) -> NoReturn:
    raise ValueError(f"{address} is not fetched: put what it names under $defs")


# A $ref to elsewhere would be fetched in the middle of a call.
_NOWHERE = dict.fromkeys(("", "file", "ftp", "http", "https"), _nowhere)


# --- the forms that providers want


class Boxed(NamedTuple):
    """A schema of an object. If `boxed`, the value is beneath `BOX`."""

    schema: Mapping[str, Any]
    boxed: bool


def boxed(schema: Mapping[str, Any]) -> Boxed:
    """The schema, in an object if it is not of one."""
    if schema.get("type") == "object" or '"$ref":"#"' in _write(schema):
        return Boxed(schema, boxed=False)
    inner = {key: value for key, value in schema.items() if key not in _SHARED}
    shared = {key: schema[key] for key in _SHARED if key in schema}
    outer = {
        "type": "object",
        "properties": {BOX: inner},
        "required": [BOX],
        "additionalProperties": False,
    }
    return Boxed(outer | shared, boxed=True)


def unboxed(text: str, schema: Mapping[str, Any]) -> str:
    """The text of a value by this schema, out of the box that it may have been put into."""
    if not boxed(schema).boxed:
        return text
    try:
        return _unbox(json.loads(text)[BOX])
    except (ValueError, LookupError, TypeError):
        return text  # as it came: the check will say what is wrong with it


_SHARED = ("$defs", "definitions", "$schema")
_LOOSE = (
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
    """The form that OpenAI calls strict: no further properties, all required.

    None for a schema that has no such form.

    A value of it obeys the schema that it was made from.
    """
    try:
        return cast("dict[str, Any]", _strict(schema))
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    pass


def _strict(schema: object) -> object:
    if not isinstance(schema, Mapping) or any(key in schema for key in _LOOSE):
        raise _NotStrictError
    if "$ref" in schema:
        alone = {"$ref": schema["$ref"]}  # nothing may stand beside it, except what it refers to
        return alone | {
            key: _each(schema[key]) for key in _SHARED if isinstance(schema.get(key), Mapping)
        }
    result = {key: value for key, value in schema.items() if key not in {"default", "$schema"}}
    for key in ("properties", "$defs", "definitions"):
        if key in result:
            result[key] = _each(result[key])
    if "items" in result:
        result["items"] = _strict(result["items"])
    if "anyOf" in result:
        result["anyOf"] = [_strict(choice) for choice in result["anyOf"]]
    if "object" in (kind if isinstance(kind := result.get("type"), list) else [kind]):
        if "properties" not in result or result.get("additionalProperties"):
            raise _NotStrictError
        result |= {"required": list(result["properties"]), "additionalProperties": False}
    return result


def _each(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _strict(schema) for name, schema in schemas.items()}

"""Sentences for what is wrong with a value: the place, and what must be there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

_LONGEST = 200  # characters of a value in a sentence


def fault_text(errors: Sequence[ValidationError]) -> str:
    """What is wrong first, as in `$.items[2].price must be number`."""
    error = errors[0]
    if error.kind.name == "required":  # one error for each name; the sentence has them all
        alike = [one for one in errors if _same_place(one, error)]
        names = [getattr(one.kind, "property", "") for one in alike]
        return f"{place_text(error.instance_path)} must contain {names} properties"
    best = _innermost(error)
    if best is not error:
        return fault_text([best])
    return f"{place_text(error.instance_path)} {_demand(error)}"


def place_text(path: Sequence[str | int]) -> str:
    """A path in a value.

    >>> place_text(["items", 2, "unit price"])
    '$.items[2]["unit price"]'
    """
    parts = (
        f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{json.dumps(part)}]"
        for part in path
    )
    return "$" + "".join(parts)


def _same_place(one: ValidationError, other: ValidationError) -> bool:
    return (one.kind.name, one.instance_path, one.schema_path) == (
        other.kind.name,
        other.instance_path,
        other.schema_path,
    )


def _innermost(error: ValidationError) -> ValidationError:
    """Of a choice that no schema allows: the error of the schema that fits best.

    That is the one that got furthest into the value; among equals, one of the expected type.
    """
    branches = getattr(error.kind, "context", None)
    firsts: list[ValidationError] = [branch[0] for branch in branches or () if branch]
    if not firsts:
        return error
    return max(firsts, key=lambda one: (len(one.instance_path), one.kind.name != "type"))


def _demand(error: ValidationError) -> str:
    kind: Any = error.kind
    if kind.name == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        return "must not contain properties that the schema does not name"
    demand = _DEMANDS.get(kind.name)
    return f"is wrong: {_cut(error.message)}" if demand is None else demand(kind)


# By keyword: what it demands, from the kind of its error.
_DEMANDS: Mapping[str, Callable[[Any], str]] = {
    "type": lambda kind: f"must be {' or '.join(kind.types)}",
    "enum": lambda kind: f"must be one of {_shown(kind.options)}",
    "const": lambda kind: f"must be {_shown(kind.expected_value)}",
    "additionalProperties": lambda kind: f"must not contain {kind.unexpected} properties",
    "unevaluatedProperties": lambda kind: f"must not contain {kind.unexpected} properties",
    "propertyNames": lambda kind: f"must not have such a property: {_cut(kind.error.message)}",
    "falseSchema": lambda _: "must not be there",
    "additionalItems": lambda kind: f"must have at most {kind.limit} items",
    "unevaluatedItems": lambda _: "must not have items that the schema does not describe",
    "uniqueItems": lambda _: "must not have an item twice",
    "contains": lambda _: "must have the items that `contains` describes",
    "minimum": lambda kind: f"must be at least {_shown(kind.limit)}",
    "maximum": lambda kind: f"must be at most {_shown(kind.limit)}",
    "exclusiveMinimum": lambda kind: f"must be more than {_shown(kind.limit)}",
    "exclusiveMaximum": lambda kind: f"must be less than {_shown(kind.limit)}",
    "multipleOf": lambda kind: f"must be a multiple of {_shown(kind.multiple_of)}",
    "minLength": lambda kind: f"must have at least {kind.limit} characters",
    "maxLength": lambda kind: f"must have at most {kind.limit} characters",
    "minItems": lambda kind: f"must have at least {kind.limit} items",
    "maxItems": lambda kind: f"must have at most {kind.limit} items",
    "minProperties": lambda kind: f"must have at least {kind.limit} properties",
    "maxProperties": lambda kind: f"must have at most {kind.limit} properties",
    "pattern": lambda kind: f"must match pattern {_shown(kind.pattern)}",
    "format": lambda kind: f"must be {kind.format}",
    "not": lambda kind: f"must not obey {_shown(kind.schema)}",
    "oneOf": lambda _: "must obey exactly one schema of `oneOf`, and obeys several",
}


def _shown(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"

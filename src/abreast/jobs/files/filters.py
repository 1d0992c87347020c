"""The filters of expressions: `value | name(argument)`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from abreast.jobs.files.fuel import (
    MAX_TEXT_LENGTH,
    MAX_VALUE_DEPTH,
    ExpressionFailed,
    Fuel,
    Value,
    check_size,
    checked_text,
    kind_of,
    python_text,
)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter, and how many arguments it takes."""

    apply: Callable[..., Value]
    least: int = 0
    most: int = 0


def to_json(fuel: Fuel, value: Value) -> str:
    """Return JSON text that is the same for equal values: sorted keys, no escapes of letters."""
    check_size(fuel.burn_value(value))
    _check_keys(value)
    try:
        return checked_text(json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ExpressionFailed(f"to_json: the value has no JSON form: {error}") from error


def contains(fuel: Fuel, value: Value, wanted: Value) -> bool:
    """Return whether a text contains a text, or a list an element; False for other values."""
    if isinstance(value, str):
        if not isinstance(wanted, str):
            _refuse("contains", "a text to look for in a text", wanted)
        fuel.burn_text(len(value))
        return wanted in value
    return isinstance(value, list | tuple) and is_among(fuel, value, wanted)


def is_among(fuel: Fuel, values: list[Value] | tuple[Value, ...], wanted: Value) -> bool:
    """Return whether a list has an equal element."""
    if isinstance(wanted, Mapping | list | tuple):
        fuel.burn_value(values)
    else:
        fuel.burn(len(values) * (1 + (len(wanted) // 64 if isinstance(wanted, str) else 0)))
    return wanted in values


def _refuse(name: str, wanted: str, got: Value) -> NoReturn:
    raise ExpressionFailed(f"{name}: it takes {wanted}, not {kind_of(got)}")


def _require_text(name: str, value: Value, what: str = "a text") -> str:
    return value if isinstance(value, str) else _refuse(name, what, value)


def _join(fuel: Fuel, value: Value, between: Value) -> str:
    separator = _require_text("join", between, "a text to put between")
    if not isinstance(value, list | tuple):
        return python_text(value, fuel)
    parts: list[str] = []
    size = 0
    for one in value:
        parts.append(python_text(one, fuel))
        size += len(parts[-1]) + len(separator)
        fuel.burn()
        if size - len(separator) > MAX_TEXT_LENGTH:
            raise ExpressionFailed(f"join: the text is longer than {MAX_TEXT_LENGTH} characters")
    return separator.join(parts)


def _map(fuel: Fuel, value: Value, path: Value) -> list[Value]:
    keys = _require_text("map", path, "the name of a key").split(".")
    if not isinstance(value, list | tuple):
        return []
    fuel.burn(len(value) * len(keys))
    return [_look_up(one, keys) if isinstance(one, Mapping) else one for one in value]


def _look_up(value: Value, keys: list[str]) -> Value:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _from_json(fuel: Fuel, value: Value) -> Value:
    text = checked_text(_require_text("from_json", value, "a JSON text"))
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ExpressionFailed(
            f"from_json: the JSON is nested more than {MAX_VALUE_DEPTH} levels deep"
        ) from None
    except ValueError as error:
        raise ExpressionFailed(f"from_json: this is no JSON: {error}") from error
    fuel.burn_value(found)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not part of it")


def _check_keys(value: Value) -> None:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            if odd := [key for key in part if not isinstance(key, str)]:
                raise ExpressionFailed(
                    f"to_json: the keys of a mapping must be texts, not {odd[0]!r:.40}"
                )
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part


def _split(fuel: Fuel, value: Value, between: Value) -> list[str]:
    text = _require_text("split", value)
    separator = _require_text("split", between, "a text to split at")
    if not separator:
        raise ExpressionFailed("split: the text to split at is empty")
    fuel.burn_text(len(text))
    fuel.burn(text.count(separator))
    return text.split(separator)


FILTERS: Final[Mapping[str, Filter]] = {
    "default": Filter(
        lambda _fuel, value, other="": other if value is None or value == "" else value, 0, 1
    ),
    "join": Filter(_join, 1, 1),
    "map": Filter(_map, 1, 1),
    "contains": Filter(contains, 1, 1),
    "split": Filter(_split, 1, 1),
    "from_json": Filter(_from_json),
    "to_json": Filter(to_json),
    "tojson": Filter(to_json),
    "length": Filter(
        lambda _fuel, value: (
            len(value)
            if isinstance(value, str | list | tuple)
            else _refuse("length", "a text or a list", value)
        )
    ),
    "trim": Filter(lambda _fuel, value: _require_text("trim", value).strip()),
    "upper": Filter(lambda _fuel, value: checked_text(_require_text("upper", value).upper())),
    "lower": Filter(lambda _fuel, value: checked_text(_require_text("lower", value).lower())),
}
"""The filters after `|`. `raw` is not one of them: it is a mark for shell steps."""

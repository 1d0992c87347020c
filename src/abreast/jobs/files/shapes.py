"""The shapes of values in job files: a check, its description, and its JSON schema."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from abreast.jobs.files.problems import Problems, shown
from abreast.jobs.files.yaml_nodes import YamlNode


class ValueShape(NamedTuple):
    """What a value must be: a check for the loader, a description, and a schema for editors."""

    fits: Callable[[Any], bool]
    wanted: str
    schema: Mapping[str, Any]


class KeySpec(NamedTuple):
    """A key of a mapping in the file: the shape of its value, and whether it is required.

    A required key may be left out if the key `unless` is there.
    """

    shape: ValueShape
    required: bool = False
    about: str = ""
    unless: str = ""


def is_number(given: object) -> bool:
    """Return whether it is a finite number; true and false are not."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return False
    try:
        return math.isfinite(given)
    except OverflowError:  # a whole number that is too large for a float
        return False


def is_whole(given: object, least: int, most: int | None = None) -> bool:
    """Return whether it is a whole number within these bounds."""
    if isinstance(given, bool) or not isinstance(given, int):
        return False
    return given >= least and (most is None or given <= most)


def is_part_or_count(given: Any) -> bool:  # noqa: ANN401 - any value of a file
    """Return whether it is a part below 1, or a whole number."""
    return is_number(given) and given >= 0 and (given < 1 or given == int(given))


def _is_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in given)


def one_of(words: tuple[str, ...]) -> ValueShape:
    """Return the shape of one of these texts."""
    return ValueShape(
        lambda given: given in words, f"one of {', '.join(words)}", {"enum": list(words)}
    )


def whole(least: int, most: int | None = None) -> ValueShape:
    """Return the shape of a whole number within these bounds."""
    upper = {} if most is None else {"maximum": most}
    wanted = (
        f"a whole number of at least {least}"
        if most is None
        else f"a whole number from {least} to {most}"
    )
    return ValueShape(
        lambda given: is_whole(given, least, most),
        wanted,
        {"type": "integer", "minimum": least, **upper},
    )


def text_like(pattern: str, wanted: str) -> ValueShape:
    """Return the shape of a text that matches the pattern."""
    compiled = re.compile(pattern.removeprefix("^").removesuffix("$"))
    return ValueShape(
        lambda given: isinstance(given, str) and compiled.fullmatch(given) is not None,
        wanted,
        {"type": "string", "pattern": pattern},
    )


ANY: Final = ValueShape(lambda _: True, "anything", {})
TEXT: Final = ValueShape(lambda given: isinstance(given, str), "a text", {"type": "string"})
NAME: Final = ValueShape(
    lambda given: isinstance(given, str) and given != "",
    "a text",
    {"type": "string", "minLength": 1},
)
TEXTS: Final = ValueShape(
    _is_texts, "a list of texts", {"type": "array", "items": {"type": "string"}}
)
NAMES: Final = ValueShape(
    lambda given: _is_texts(given) and len(given) > 0,
    "a list of at least one text",
    {"type": "array", "items": {"type": "string"}, "minItems": 1},
)
IDS: Final = ValueShape(
    _is_texts, "a list of ids of steps", {"type": "array", "items": {"type": "string"}}
)
SWITCH: Final = ValueShape(
    lambda given: isinstance(given, bool), "true or false, without quotes", {"type": "boolean"}
)
MAPPING: Final = ValueShape(lambda given: isinstance(given, dict), "a mapping", {"type": "object"})
SECONDS: Final = ValueShape(
    lambda given: is_number(given) and given > 0,
    "a number of seconds above 0",
    {"type": "number", "exclusiveMinimum": 0},
)
STEPS: Final = ValueShape(
    lambda given: isinstance(given, list),
    "a list of steps",
    {"type": "array", "items": {"$ref": "#/$defs/step"}},
)
SOME_STEPS: Final = ValueShape(
    lambda given: isinstance(given, list) and len(given) > 0,
    "a list of at least one step",
    {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1},
)
TEMPLATE: Final = ValueShape(
    lambda given: isinstance(given, dict), "a step", {"$ref": "#/$defs/template"}
)
CASES: Final = ValueShape(
    lambda given: isinstance(given, dict) and all(isinstance(one, list) for one in given.values()),
    "a mapping of lists of steps",
    {"type": "object", "additionalProperties": STEPS.schema},
)
CONDITION: Final = ValueShape(
    lambda given: isinstance(given, (str, bool)),
    "true, false or an expression such as '{{ inputs.count > 3 }}'",
    {"type": ["string", "boolean"]},
)
PART: Final = ValueShape(
    lambda given: is_number(given) and 0 <= given <= 1,
    "a part between 0 and 1",
    {"type": "number", "minimum": 0, "maximum": 1},
)


def refuse_unknown(node: YamlNode, words: Iterable[str], what: str, report: Problems) -> None:
    """Report every key of a mapping that is not among these words."""
    known = list(words)
    for key in node.pairs:
        at = (node.line_of(key), key)
        if key not in known and at not in report.misspelt:
            report.misspelt.add(at)
            hint = report.instead(key, known)
            report.problem(at[0], f"there is no {shown(key)} in {what}; {hint}")


def report_missing(
    node: YamlNode, key: str, words: Iterable[str], what: str, report: Problems
) -> None:
    """Report that a mapping has no such key; if a key is like it, that this one is misspelt."""
    report.hints -= 1
    unknown = [one for one in node.pairs if one not in words] if report.hints >= 0 else []
    close = get_close_matches(key, unknown, 1)
    if not close:
        report.problem(node.line, f"{what} has no {key!r}")
    elif (at := (node.line_of(close[0]), close[0])) not in report.misspelt:
        report.misspelt.add(at)
        report.problem(at[0], f"there is no {shown(close[0])} in {what}; did you mean {key}?")


def fitting(
    node: YamlNode, words: Mapping[str, KeySpec], what: str, report: Problems
) -> dict[str, YamlNode]:
    """Return the keys of a mapping whose values have the right shape.

    The others, and required keys that are missing, are reported.
    """
    found: dict[str, YamlNode] = {}
    for key, word in words.items():
        value = node.get(key)
        if value is None:
            if word.required and node.get(word.unless) is None:
                report_missing(node, key, words, what, report)
            continue
        plain = value.plain(2)
        if plain is None and not word.required and word.shape not in (ANY, SWITCH):
            continue
        if word.shape.fits(plain):
            found[key] = value
            continue
        is_text = word.shape.schema.get("type") == "string"
        quotes = "; put it in quotes" if is_text and isinstance(plain, (int, float)) else ""
        fault = f"{key!r} of {what} must be {word.shape.wanted}, not {shown(plain)}{quotes}"
        report.problem(value.line if value.kind == "value" else node.line_of(key), fault)
    return found

"""The JSON schema of workflow files, for editors: made of the tables that the loader reads, so that it agrees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from abreast.jobs.files.shapes import ANY, Word
from abreast.jobs.workflow.load import step_words as kinds

_STEP_LIST: Final = {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1}


def workflow_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a workflow file.

    It is what an editor can know: that `needs` names steps that are there is for the loader. Types
    of step that somebody has registered are let through.

    >>> workflow_schema()["required"]
    ['workflow', 'steps']
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A workflow",
        "type": "object",
        "required": ["workflow", "steps"],
        "properties": {
            "schema_version": {"enum": ["1.0", 1.0]},
            "workflow": _mapping(kinds.HEADER),
            "requires": {"type": ["object", "null"], "not": {"required": ["permissions"]}},
            "inputs": {"type": ["object", "null"], "additionalProperties": _mapping(kinds.INPUT)},
            "steps": _STEP_LIST,
            "outputs": {"type": ["object", "null"], "additionalProperties": _OUTPUT},
        },
        "$defs": {
            "step": {"allOf": [{"$ref": "#/$defs/template"}], "required": ["id"]},
            "template": _step(),
        },
    }


_OUTPUT: Final = {
    "type": "object",
    "required": ["value"],
    "properties": {"value": {}},
    "additionalProperties": False,
}


def _step() -> dict[str, Any]:
    """A step: by its type, which keys it takes.

    Without an id it is what a fan-out does for each item.
    """
    branches = [
        {
            "if": {
                "properties": {"type": {"const": kind}},
                **({} if kind == kinds.DEFAULT_TYPE else {"required": ["type"]}),
            },
            "then": {
                **_mapping(kinds.words_of(kind), but=("id",)),
                "additionalProperties": False,
                **_more(kind),
            },
        }
        for kind in kinds.KINDS
    ]
    shared = {word: _property(kinds.COMMON[word]) for word in kinds.OURS}
    shared["type"] = {
        "type": "string",
        "minLength": 1,
        "not": {"enum": list(kinds.REFUSED)},
        "default": "command",
    }
    return {"type": "object", "properties": shared, "allOf": branches}


def _more(kind: str) -> dict[str, Any]:
    """What a table of words can't say."""
    if kind == "fan-out":
        return {"oneOf": [{"required": ["step"]}, {"required": ["steps"]}]}
    return (
        {"dependentRequired": {"capture_max_bytes": ["capture"]}}
        if kind in {"command", "prompt"}
        else {}
    )


def _mapping(words: Mapping[str, Word], but: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name, word in words.items() if word.required and name not in but]
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: _property(word) for name, word in words.items()},
    }
    return {**made, "required": required} if required else made


def _property(word: Word) -> dict[str, Any]:
    """A key's schema; one that may be left out may be null as well."""
    schema = dict(word.shape.schema)
    kind = schema.get("type")
    if not word.required and word.shape is not ANY and kind != "boolean":
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        elif isinstance(kind, str):
            schema["type"] = [kind, "null"]
    return {**schema, "description": word.about} if word.about else schema

"""The JSON schema of workflow files, for editors, made from the same tables as the loader."""

from collections.abc import Mapping
from typing import Any, Final

from abreast.jobs.files.shapes import ANY, KeySpec
from abreast.jobs.workflow.load import step_words

_STEP_LIST: Final = {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1}


def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a workflow file.

    It checks what an editor can check; that `needs` names existing steps is checked by the loader.
    Types of step that packages have registered are accepted.

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
            "workflow": _mapping(step_words.HEADER),
            "requires": {"type": ["object", "null"], "not": {"required": ["permissions"]}},
            "inputs": {
                "type": ["object", "null"],
                "additionalProperties": _mapping(step_words.INPUT),
            },
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
    """Return the schema of a step: its type decides which keys it takes.

    The `id` is not required, because the `step` of a fan-out has none.
    """
    branches = [
        {
            "if": {
                "properties": {"type": {"const": kind}},
                **({} if kind == step_words.DEFAULT_TYPE else {"required": ["type"]}),
            },
            "then": {
                **_mapping(step_words.words_of(kind), but=("id",)),
                "additionalProperties": False,
                **_relations(kind),
            },
        }
        for kind in step_words.KINDS
    ]
    shared = {word: _property(step_words.COMMON[word]) for word in step_words.SHARED_KEYS}
    shared["type"] = {
        "type": "string",
        "minLength": 1,
        "not": {"enum": list(step_words.REFUSED)},
        "default": "command",
    }
    return {"type": "object", "properties": shared, "allOf": branches}


def _relations(kind: str) -> dict[str, Any]:
    """Return the rules between keys, which a table of single keys can't express."""
    if kind == "fan-out":
        return {"oneOf": [{"required": ["step"]}, {"required": ["steps"]}]}
    return (
        {"dependentRequired": {"capture_max_bytes": ["capture"]}}
        if kind in {"command", "prompt"}
        else {}
    )


def _mapping(words: Mapping[str, KeySpec], but: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name, word in words.items() if word.required and name not in but]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _property(word) for name, word in words.items()},
    }
    return {**schema, "required": required} if required else schema


def _property(word: KeySpec) -> dict[str, Any]:
    """Return the schema of a key; an optional key may also be null."""
    schema = dict(word.shape.schema)
    kind = schema.get("type")
    if not word.required and word.shape is not ANY and kind != "boolean":
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        elif isinstance(kind, str):
            schema["type"] = [kind, "null"]
    return {**schema, "description": word.about} if word.about else schema

"""The keys of each type of step and the shapes of their values, for the loader and the schema."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from abreast.jobs.files.shapes import (
    ANY,
    CASES,
    CONDITION,
    IDS,
    MAPPING,
    NAME,
    NAMES,
    PART,
    SECONDS,
    SOME_STEPS,
    STEPS,
    SWITCH,
    TEMPLATE,
    TEXT,
    TEXTS,
    KeySpec,
    ValueShape,
    is_number,
    is_part_or_count,
    is_whole,
    one_of,
    text_like,
    whole,
)
from abreast.models.port import EFFORTS

DEFAULT_TYPE: Final = "command"
_MAX_RETRIES: Final = 100
_MAX_TEMPERATURE: Final = 100


_TIMES_SCHEMA: Final = {"type": "integer", "minimum": 0, "maximum": _MAX_RETRIES}
RETRY: Final = ValueShape(
    lambda given: isinstance(given, dict) or is_whole(given, 0, _MAX_RETRIES),
    f"a whole number from 0 to {_MAX_RETRIES}",
    {
        "anyOf": [
            _TIMES_SCHEMA,
            {"type": "null"},
            {
                "type": "object",
                "required": ["times"],
                "properties": {"times": _TIMES_SCHEMA, "delay": {"type": "number", "minimum": 0}},
                "additionalProperties": False,
            },
        ]
    },
)
VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"

CANARY: Final = {"items": KeySpec(whole(1), required=True), "min_success": KeySpec(PART)}

COMMON: Final[dict[str, KeySpec]] = {
    "id": KeySpec(
        text_like(r"^[^:]+$", "a text without ':'"),
        required=True,
        about="The step's name in steps.<id>",
    ),
    "type": KeySpec(NAME, about="command, unless it says otherwise"),
    "continue_on_error": KeySpec(SWITCH, about="Go on with the next step if this one fails"),
    "needs": KeySpec(
        IDS, about="Steps of the same list that must be done first; without it, the step before"
    ),
    "if": KeySpec(CONDITION, about="Whether it runs at all; else it is skipped"),
    "retry": KeySpec(
        RETRY,
        about="How often it is tried again after a failure; {times: 3, delay: 10} waits in between",
    ),
    "timeout": KeySpec(SECONDS, about="Seconds after which it is stopped"),
    "budget": KeySpec(
        NAME, about="What it may spend: 50req, 2Mtok, 20usd, 10min, several by comma"
    ),
    "lane": KeySpec(NAME, about="The lane whose limits it waits for"),
    "effect": KeySpec(
        one_of(("pure", "idempotent", "once")),
        about="Whether it may be repeated when it is unknown if it was done",
    ),
    "output_schema": KeySpec(MAPPING, about="The JSON schema that its output obeys"),
    "input": KeySpec(ANY, about="Kept as steps.<id>.input"),
    "name": KeySpec(ANY, about="For readers"),
    "description": KeySpec(ANY, about="For readers"),
    "integration": KeySpec(ANY),
    "model": KeySpec(ANY),
    "options": KeySpec(ANY),
}
"""The keys that any step may have.

The last three are for commands and prompts; spec-kit accepts them on every step.
"""

COMPOSITE: Final = frozenset(
    {"if", "switch", "while", "do-while", "fan-out", "fan-in", "workflow", "slot"}
)
"""Steps that only run other steps, or collect their outputs."""
PROCESSES: Final = frozenset({"shell", "command", "prompt", "agent"})
"""Steps that may start a process."""
ACTION_KEYS: Final = frozenset({"retry", "lane", "effect", "output_schema"})
"""Keys that are for actions only."""

_PROCESS: Final[dict[str, KeySpec]] = {
    "env": KeySpec(
        ValueShape(
            lambda given: (
                isinstance(given, dict)
                and all(isinstance(name, str) and re.fullmatch(VARIABLE, name) for name in given)
                and all(isinstance(value, (str, int, float)) for value in given.values())
            ),
            "a mapping of names of variables to texts",
            {
                "type": "object",
                "propertyNames": {"pattern": f"^{VARIABLE}$"},
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
        ),
        about="Variables of the command's environment, beside those that there are",
    ),
    "cwd": KeySpec(NAME, about="The directory that the command runs in, from that of the run"),
    "worktree": KeySpec(SWITCH, about="Work in a copy of the working tree"),
}
_AGENT: Final[dict[str, KeySpec]] = {
    **_PROCESS,
    "integration": KeySpec(TEXT, about="The agent's command line"),
    "model": KeySpec(TEXT),
    "capture": KeySpec(SWITCH, about="Keep what it prints"),
    "capture_max_bytes": KeySpec(
        ValueShape(
            lambda given: given == -1 or is_whole(given, 1),
            "a whole number of bytes, or -1 for all",
            {"type": "integer", "minimum": -1, "not": {"const": 0}},
        )
    ),
}
_LOOP: Final[dict[str, KeySpec]] = {
    "condition": KeySpec(CONDITION, required=True),
    "steps": KeySpec(STEPS, required=True),
    "max_iterations": KeySpec(whole(1), about="Rounds at most; 10, unless it says otherwise"),
}

_IMAGE_SCHEMA: Final = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"image": {"type": "string"}}, "required": ["image"]},
    ]
}
_IMAGES: Final = ValueShape(
    lambda given: all(
        isinstance(one, str) or (isinstance(one, dict) and isinstance(one.get("image"), str))
        for one in (given if isinstance(given, list) else [given])
    ),
    "a path, or a list of paths",
    {"anyOf": [*_IMAGE_SCHEMA["anyOf"], {"type": "array", "items": _IMAGE_SCHEMA}]},
)

_MESSAGES: Final = ValueShape(
    lambda given: isinstance(given, list) or (isinstance(given, str) and "{{" in given),
    "a list of messages",
    {
        "anyOf": [
            {"type": "string", "pattern": r"\{\{"},
            {
                "type": "array",
                "minItems": 1,
                "items": {
                    "anyOf": [
                        {"type": "string", "pattern": r"\{\{"},
                        {
                            "type": "object",
                            "required": ["role"],
                            "properties": {
                                "role": {"type": "string"},
                                "content": {"type": ["string", "number", "array", "null"]},
                            },
                        },
                    ]
                },
            },
        ]
    },
)

KINDS: Final[dict[str, dict[str, KeySpec]]] = {
    "command": {
        "command": KeySpec(TEXT, required=True, about="The slash command"),
        "input": KeySpec(MAPPING),
        "options": KeySpec(MAPPING),
        "integration_args": KeySpec(TEXTS),
        "integration_options": KeySpec(MAPPING),
        **_AGENT,
    },
    "prompt": {
        "prompt": KeySpec(TEXT, required=True, unless="messages"),
        "messages": KeySpec(
            _MESSAGES, about="The turns before the prompt, or all: each with role and content"
        ),
        "system": KeySpec(TEXT),
        "temperature": KeySpec(
            ValueShape(
                lambda given: is_number(given) and 0 <= given <= _MAX_TEMPERATURE,
                "a number of at least 0",
                {"type": "number", "minimum": 0, "maximum": _MAX_TEMPERATURE},
            )
        ),
        "max_tokens": KeySpec(whole(1)),
        "images": KeySpec(
            _IMAGES, about="Paths of images and PDF files for the model, from the run's directory"
        ),
        "reasoning": KeySpec(one_of(EFFORTS), about="How much to think before the reply"),
        "thinking_tokens": KeySpec(whole(0), about="To think with, besides max_tokens"),
        "warm": KeySpec(
            SWITCH, about="Send one prompt ahead, so that the others find its beginning cached"
        ),
        **_AGENT,
    },
    "agent": {
        "agent": KeySpec(TEXT, required=True, about="claude, codex, or one of [agents.NAME]"),
        "prompt": KeySpec(TEXT, required=True, about="Its task"),
        "model": KeySpec(TEXT),
        "allow": KeySpec(
            TEXTS, about="What it may do, such as edit, run; in a worktree it may edit"
        ),
        **_PROCESS,
    },
    "shell": {
        "run": KeySpec(
            TEXT, required=True, about="For the shell; values of {{ }} reach it as data"
        ),
        "output_format": KeySpec(one_of(("json",))),
        **_PROCESS,
    },
    "python": {
        "call": KeySpec(
            text_like(r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", "a function as module:function"),
            required=True,
        ),
        "with": KeySpec(MAPPING, about="The function's keywords"),
    },
    "gate": {
        "message": KeySpec(ANY, required=True),
        "options": KeySpec(NAMES),
        "on_reject": KeySpec(one_of(("abort", "skip", "retry"))),
        "show_file": KeySpec(ANY),
        "verdict_input": KeySpec(NAME, about="The input that decides, where it is not empty"),
    },
    "if": {
        "condition": KeySpec(CONDITION, required=True),
        "then": KeySpec(STEPS, required=True),
        "else": KeySpec(STEPS),
    },
    "switch": {
        "expression": KeySpec(ANY, required=True),
        "cases": KeySpec(CASES, required=True),
        "default": KeySpec(STEPS),
    },
    "while": _LOOP,
    "do-while": _LOOP,
    "fan-out": {
        "items": KeySpec(ANY, required=True, about="A list, or an expression that gives one"),
        "max_concurrency": KeySpec(ANY, about="How many run at once; 1, unless it says otherwise"),
        "step": KeySpec(TEMPLATE, about="What is done for each item"),
        "steps": KeySpec(SOME_STEPS, about="What is done for each item, one after the other"),
        "min_success": KeySpec(
            ValueShape(
                is_part_or_count, "a count, or a part below 1", {"type": "number", "minimum": 0}
            ),
            about="How many items must succeed: a count, or a part below 1",
        ),
        "max_failures": KeySpec(whole(0), about="How many items may fail"),
        "canary": KeySpec(
            MAPPING, about="The first items run alone, and nothing else if too few of them succeed"
        ),
        "worktree": KeySpec(
            SWITCH, about="Let each item work in a copy of the working tree of its own"
        ),
        "key": KeySpec(
            TEXT, about="A name by which an item is known again, such as '{{ item.id }}'"
        ),
    },
    "fan-in": {
        "wait_for": KeySpec(
            NAMES, required=True, about="Earlier steps, whose outputs are put together"
        ),
        "output": KeySpec(MAPPING),
    },
    "sample": {"sample": KeySpec(MAPPING, required=True, about="The words of a sample")},
    "workflow": {
        "workflow": KeySpec(
            TEXT, required=True, about="A file beside this one, such as inner.yaml"
        ),
        "input": KeySpec(MAPPING, about="Its inputs"),
    },
    "slot": {
        "name": KeySpec(
            ValueShape(
                lambda given: isinstance(given, str) and given.strip() != "",
                "a text that is not blank",
                {"type": "string", "pattern": r"\S"},
            ),
            required=True,
            about="What may stand here",
        )
    },
}

_REPLY_OUTPUTS: Final = (
    "text",
    "stdout",
    "stderr",
    "exit_code",
    "dispatched",
    "data",
    "integration",
    "model",
    "agent",
    "tree",
)
OUTPUTS: Final[dict[str, frozenset[str]]] = {
    "shell": frozenset({"exit_code", "stdout", "stderr", "data", "tree"}),
    "prompt": frozenset({"prompt", *_REPLY_OUTPUTS}),
    "agent": frozenset({"prompt", *_REPLY_OUTPUTS}),
    "command": frozenset(
        {"command", "input", "options", "integration_args", "integration_options", *_REPLY_OUTPUTS}
    ),
    "gate": frozenset({"message", "options", "on_reject", "show_file", "choice", "aborted"}),
    "if": frozenset({"condition_result", "condition"}),
    "switch": frozenset({"matched_case", "expression_value"}),
    "while": frozenset(
        {
            "condition_result",
            "condition",
            "max_iterations",
            "loop_type",
            "iterations",
            "max_reached",
        }
    ),
    "do-while": frozenset(
        {
            "condition_result",
            "condition",
            "max_iterations",
            "loop_type",
            "iterations",
            "max_reached",
        }
    ),
    "fan-out": frozenset(
        {"items", "max_concurrency", "item_count", "results", "quarantine", "step_template"}
    ),
    "fan-in": frozenset({"results"}),
    "sample": frozenset({"ok", "text", "value", "counts", "winner", "exit_code", "dispatched"}),
    "workflow": frozenset({"workflow", "status", "error"}),
}
"""The names in the output of each type, where they are known.

A fan-in and a workflow add those that the file gives.
"""
NAMESPACES: Final = ("inputs", "steps", "item", "fan_in", "context")
"""The first names of paths in expressions."""
FACTS: Final = ("type", "status", "output", "input", "error")
"""The names in `steps.<id>`."""

SHARED_KEYS: Final = tuple(COMMON)[: tuple(COMMON).index("input")]
"""The keys that a step of a registered kind shares with all others; the rest is its config."""

REFUSED: Final = {
    "init": "an init step sets up a spec-kit project, which is not done here; "
    "run `specify init` before the workflow",
    "github": "a github step is not run here; use a shell step with the gh command",
}
"""Types of spec-kit that are not run, each with what to do instead."""

HEADER: Final[dict[str, KeySpec]] = {
    "id": KeySpec(
        text_like(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "lower-case letters, digits and hyphens"),
        required=True,
    ),
    "name": KeySpec(NAME),
    "version": KeySpec(text_like(r"^[0-9]+\.[0-9]+\.[0-9]+$", "a text such as '1.0.0'")),
    "author": KeySpec(ANY),
    "description": KeySpec(ANY),
    "integration": KeySpec(TEXT),
    "model": KeySpec(TEXT),
    "options": KeySpec(MAPPING),
}
INPUT: Final[dict[str, KeySpec]] = {
    "type": KeySpec(one_of(("string", "number", "boolean"))),
    "required": KeySpec(SWITCH),
    "default": KeySpec(ANY),
    "enum": KeySpec(ValueShape(lambda given: isinstance(given, list), "a list", {"type": "array"})),
    "prompt": KeySpec(TEXT, about="What to ask on a terminal"),
    "secret": KeySpec(SWITCH, about="Never stored nor shown; given again when the run is resumed"),
    "description": KeySpec(ANY),
}
TOP: Final = ("schema_version", "workflow", "requires", "inputs", "steps", "outputs")
REQUIRES: Final = ("speckit_version", "integrations")
OUTPUT_NAME: Final = r"^[A-Za-z0-9_]([\w-]*\w)?$"
RESERVED_OUTPUTS: Final = frozenset(
    {"workflow", "status", "error", "aborted", "integration", "model", "options", "input"}
)


def check_by(parse: Callable[[Any], object], given: object) -> str | None:
    """Return what is wrong with a value by the error of the function that reads it, or None."""
    try:
        parse(given)
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)
    return None


def check_retry(given: object) -> str | None:
    """Return what is wrong with a `retry` mapping of times and delay, or None."""
    if not isinstance(given, dict):
        return None
    delay = given.get("delay", 0)
    known = given.keys() <= {"times", "delay"} and is_number(delay) and delay >= 0
    return (
        None
        if known and is_whole(given.get("times"), 0, _MAX_RETRIES)
        else "it must be {times: 3, delay: 10}, with a whole number of times up to 100 "
        "and the delay in seconds"
    )


def words_of(kind: str) -> dict[str, KeySpec]:
    """Return all keys that a step of a built-in type may have."""
    return COMMON | KINDS[kind]


# --- the JSON schema of workflow files, for editors -----------------------------------------------

# The rules between keys, which a table of single keys can't express.
_RELATIONS: Final[dict[str, dict[str, Any]]] = {
    "fan-out": {"oneOf": [{"required": ["step"]}, {"required": ["steps"]}]},
    "command": {"dependentRequired": {"capture_max_bytes": ["capture"]}},
    "prompt": {
        "dependentRequired": {"capture_max_bytes": ["capture"]},
        "anyOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
    },
}


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
            "workflow": _mapping(HEADER),
            "requires": {"type": ["object", "null"], "not": {"required": ["permissions"]}},
            "inputs": {
                "type": ["object", "null"],
                "additionalProperties": _mapping(INPUT),
            },
            "steps": SOME_STEPS.schema,
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
                **({} if kind == DEFAULT_TYPE else {"required": ["type"]}),
            },
            "then": {
                **_mapping(words_of(kind), but=("id",)),
                "additionalProperties": False,
                **_RELATIONS.get(kind, {}),
            },
        }
        for kind in KINDS
    ]
    shared = {word: _property(COMMON[word]) for word in SHARED_KEYS}
    shared["type"] = {
        "type": "string",
        "minLength": 1,
        "not": {"enum": list(REFUSED)},
        "default": "command",
    }
    return {"type": "object", "properties": shared, "allOf": branches}


def _mapping(words: Mapping[str, KeySpec], but: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [
        name
        for name, word in words.items()
        if word.required and not word.unless and name not in but
    ]
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

"""Rehearses a workflow: every action gets a recorded or a simulated output and is not run."""

from collections.abc import Mapping
from typing import Any, Final

from abreast.jobs.workflow.spec import (
    Action,
    Command,
    Custom,
    GateStep,
    Prompt,
    Python,
    Sample,
    Shell,
)
from abreast.jobs.workflow.steps.records import Record
from abreast.jobs.workflow.tools import StepContext

_LIST_ITEMS: Final = 3  # items of a simulated list
_MAX_DEPTH: Final = 8  # levels of objects and arrays in a simulated value


class Rehearsal:
    """Gives outputs for actions that are not run: a recorded one, else one simulated from the seed.

    The same seed gives the same output.
    """

    def __init__(self, recorded: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`recorded` outputs, by the full ids of their steps, are preferred to simulated ones."""
        self._recorded = recorded or {}

    def __call__(
        self, step: Action, config: Mapping[str, Any], context: StepContext
    ) -> dict[str, Any]:
        """Return the plain Record of a completed step."""
        recorded = self._recorded.get(context.step)
        output = (
            dict(recorded) if recorded is not None else _SIMULATE[type(step)](step, config, context)
        )
        return Record(step.common.type, "completed", output).plain()


def example_of(schema: Mapping[str, Any], seed: int, depth: int = 0) -> Any:  # noqa: ANN401 - what the schema describes
    """Return a small value that obeys most schemas: a choice of an enum, few items, short texts."""
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if choices:
        return choices[seed % len(choices)]
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return example_of(several[0], seed, depth)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" and depth < _MAX_DEPTH:
        return {
            name: example_of(one, seed + place, depth + 1)
            for place, (name, one) in enumerate(schema.get("properties", {}).items())
        }
    if kind == "array" and depth < _MAX_DEPTH:
        count = min(
            max(_LIST_ITEMS, schema.get("minItems", 0)), schema.get("maxItems", _LIST_ITEMS)
        )
        return [
            example_of(schema.get("items", {}), seed + place, depth + 1) for place in range(count)
        ]
    if kind in ("integer", "number"):
        least = schema.get("minimum", 0)
        return min(least + seed % 10, schema.get("maximum", least + 9))
    plain: dict[str, Any] = {"boolean": seed % 2 == 0, "null": None, "object": {}, "array": []}
    return plain.get(str(kind), f"text {seed % 1000}")


def _value(step: Action, context: StepContext) -> Any:  # noqa: ANN401 - what the schema describes
    schema = step.common.output_schema
    return (
        [f"{step.common.id} {number}" for number in range(1, _LIST_ITEMS + 1)]
        if schema is None
        else example_of(schema, context.seed)
    )


def _shell(step: Shell, _config: Mapping[str, Any], context: StepContext) -> dict[str, Any]:
    output: dict[str, Any] = {"exit_code": 0, "stdout": f"simulated {context.step}\n", "stderr": ""}
    if step.json or step.common.output_schema is not None:
        output["data"] = _value(step, context)
    return output


def _prompt(
    step: Prompt | Command, config: Mapping[str, Any], context: StepContext
) -> dict[str, Any]:
    text = f"simulated {context.step}"
    output = {
        **config,
        "text": text,
        "stdout": text,
        "stderr": "",
        "exit_code": 0,
        "dispatched": False,
    }
    if step.common.output_schema is not None:
        output["data"] = _value(step, context)
    return {
        word: one
        for word, one in output.items()
        if word not in ("schema", "cwd", "env", "worktree")
    }


def _function(
    step: Python | Custom, _config: Mapping[str, Any], context: StepContext
) -> dict[str, Any]:
    value = _value(step, context)
    return value if isinstance(value, dict) else {"value": value}


def _gate(step: GateStep, config: Mapping[str, Any], _context: StepContext) -> dict[str, Any]:
    words = ("message", "options", "on_reject", "show_file")
    return {**{word: config[word] for word in words}, "choice": step.options[0]}


_SIMULATE: Final[dict[type, Any]] = {
    Shell: _shell,
    Prompt: _prompt,
    Command: _prompt,
    Python: _function,
    Custom: _function,
    Sample: lambda _step, _config, context: {
        "ok": True,
        "text": f"simulated {context.step}",
        "value": None,
        "counts": {},
        "winner": None,
    },
    GateStep: _gate,
}

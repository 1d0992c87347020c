"""What a person sees of a workflow's result on stdout: its outputs, or else what its last step said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from abreast.cli.terminal.outcome_text import json_line
from abreast.jobs.workflow.job import FlowResult
from abreast.jobs.workflow.steps.records import Record, Records

FAN_OUT: Final = "fan-out"


def shown_text(result: FlowResult) -> str:
    """Its outputs, or else what the last step said; of a fan-out what every item said."""
    if result.outputs:
        values = list(result.outputs.values())
        found: Any = values[0] if len(values) == 1 else result.outputs
    else:
        last = _last(result.steps)
        if last is not None and last.type == FAN_OUT:
            return _each_shown(last.output)
        found = _said(last.output) if last is not None else None
    return _as_text(found)


def _last(steps: Records) -> Record | None:
    """The last step that ran; the whole fan-out where it is a step of one of its items."""
    if not steps:
        return None
    last = next(reversed(steps))
    around = (
        name
        for name, record in steps.items()
        if record.type == FAN_OUT and last.startswith(f"{name}:")
    )
    return steps[next(around, last)]


def _each_shown(output: Mapping[str, Any]) -> str:
    """What every item said, in the order of the items; those of a fan-out within one too."""
    return "".join(
        _each_shown(one) if "results" in one and "item_count" in one else _as_text(_said(one))
        for one in output["results"]
    )


def _said(output: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what a step gives is anything
    known = ("text", "stdout", "value", "data")
    rest = {word: value for word, value in output.items() if word != "results"}
    return next((output[word] for word in known if output.get(word) is not None), rest or None)


def _as_text(found: Any) -> str:  # noqa: ANN401 - anything
    if found is None or found == "":
        return ""
    text = found if isinstance(found, str) else json_line({"v": found})[5:-1]
    return text if text.endswith("\n") else f"{text}\n"

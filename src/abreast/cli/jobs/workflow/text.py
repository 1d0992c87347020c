"""The text that a workflow prints on stdout: its outputs, or else its last step's output."""

from collections.abc import Mapping
from typing import Any, Final

from abreast.cli.terminal.outcome_text import json_line
from abreast.jobs.workflow.job import FlowResult
from abreast.jobs.workflow.steps.records import Record, Records

FAN_OUT: Final = "fan-out"


def result_text(result: FlowResult) -> str:
    """The outputs, or else the last step's output; for a fan-out the output of every item."""
    if result.outputs:
        values = list(result.outputs.values())
        found: Any = values[0] if len(values) == 1 else result.outputs
    else:
        last = _last_record(result.steps)
        if last is not None and last.type == FAN_OUT:
            return _fan_out_text(last.output)
        found = _main_output(last.output) if last is not None else None
    return _as_text(found)


def _last_record(steps: Records) -> Record | None:
    """The last step that ran; if it belongs to an item of a fan-out, the fan-out."""
    if not steps:
        return None
    last = next(reversed(steps))
    around = (
        name
        for name, record in steps.items()
        if record.type == FAN_OUT and last.startswith(f"{name}:")
    )
    return steps[next(around, last)]


def _fan_out_text(output: Mapping[str, Any]) -> str:
    """The output of every item, in item order, including items of nested fan-outs."""
    return "".join(
        _fan_out_text(one)
        if "results" in one and "item_count" in one
        else _as_text(_main_output(one))
        for one in output["results"]
    )


def _main_output(output: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a step's output may be anything
    known = ("text", "stdout", "value", "data")
    rest = {word: value for word, value in output.items() if word != "results"}
    return next((output[word] for word in known if output.get(word) is not None), rest or None)


def _as_text(found: Any) -> str:  # noqa: ANN401 - anything
    if found is None or found == "":
        return ""
    text = found if isinstance(found, str) else json_line({"v": found})[5:-1]
    return text if text.endswith("\n") else f"{text}\n"

"""One function for each type of step, which makes the typed step from its checked keys."""

from collections.abc import Sequence
from typing import Any, Final

from abreast.jobs.files.expressions import ExpressionText
from abreast.jobs.files.problems import shown
from abreast.jobs.files.shapes import fitting, refuse_unknown
from abreast.jobs.files.yaml_nodes import YamlNode
from abreast.jobs.workflow.load import step_words
from abreast.jobs.workflow.load.analysis import every
from abreast.jobs.workflow.load.read_steps import ReadStep, Scope, StepReader
from abreast.jobs.workflow.spec import (
    MAX_ITERATIONS,
    CallStep,
    Canary,
    Command,
    Common,
    FanIn,
    FanOut,
    GateStep,
    If,
    Loop,
    Prompt,
    Python,
    Sample,
    Shell,
    SlotStep,
    Step,
    Switch,
    Value,
)
from abreast.models.conversation import has_files, make_conversation

_MISSING: Final = YamlNode("value", 0)
"""Stands for a key that is missing or invalid: it is reported, and the step is not used."""


def _shell(reader: StepReader, given: dict[str, YamlNode], common: Common, _: Scope) -> Step:
    return Shell(common, reader.script(given.get("run", _MISSING)), json="output_format" in given)


def _prompt(reader: StepReader, given: dict[str, YamlNode], common: Common, _: Scope) -> Step:
    _check_capture(reader, given, common)
    return Prompt(
        common,
        reader.template(given.get("prompt", _MISSING)),
        integration=reader.optional(given.get("integration")),
        model=reader.optional(given.get("model")),
        system=reader.optional(given.get("system")),
        temperature=given.get("temperature", _MISSING).value,
        max_tokens=given.get("max_tokens", _MISSING).value,
        images=reader.value(given.get("images")),
        reasoning=given.get("reasoning", _MISSING).value,
        thinking_tokens=given.get("thinking_tokens", _MISSING).value,
        messages=_messages(reader, given, common),
        warm=given.get("warm", _MISSING).value is True,
        capture=given.get("capture", _MISSING).value is True,
        capture_max_bytes=given.get("capture_max_bytes", _MISSING).value,
    )


def _agent(reader: StepReader, given: dict[str, YamlNode], common: Common, _: Scope) -> Step:
    return Prompt(
        common,
        reader.template(given.get("prompt", _MISSING)),
        integration=reader.template(given.get("agent", _MISSING)),
        model=reader.optional(given.get("model")),
        allow=tuple(one.text for one in given.get("allow", _MISSING).entries),
    )


def _messages(reader: StepReader, given: dict[str, YamlNode], common: Common) -> Value:
    """Return the messages of a prompt; those without `{{ }}` and files are checked here."""
    node, prompt = given.get("messages"), given.get("prompt", _MISSING)
    found = reader.value(node)
    if node is None or _has_expression(found):
        return found
    plain = node.plain()
    if not has_files(plain):
        try:
            make_conversation(prompt.text if "prompt" in given else None, plain)
        except (TypeError, ValueError) as error:
            reader.report.problem(node.line, f"the prompt step {common.id!r}: {error}")
    return found


def _command(reader: StepReader, given: dict[str, YamlNode], common: Common, _: Scope) -> Step:
    _check_capture(reader, given, common)
    return Command(
        common,
        given.get("command", _MISSING).text,
        integration=reader.optional(given.get("integration")),
        model=reader.optional(given.get("model")),
        options=reader.value(given.get("options")),
        integration_args=tuple(map(reader.value, given.get("integration_args", _MISSING).entries)),
        integration_options=reader.value(given.get("integration_options")),
        capture=given.get("capture", _MISSING).value is True,
        capture_max_bytes=given.get("capture_max_bytes", _MISSING).value,
    )


def _check_capture(reader: StepReader, given: dict[str, YamlNode], common: Common) -> None:
    limit = given.get("capture_max_bytes")
    if limit and given.get("capture", _MISSING).value is not True:
        reader.report.problem(
            limit.line, f"'capture_max_bytes' of the step {common.id!r} needs 'capture: true'"
        )


def _python(reader: StepReader, given: dict[str, YamlNode], common: Common, _: Scope) -> Step:
    return Python(common, given.get("call", _MISSING).text, reader.mapping(given.get("with")))


def _gate(reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope) -> Step:
    options = (
        tuple(one.text for one in given["options"].entries)
        if "options" in given
        else ("approve", "reject")
    )
    on_reject: Any = given["on_reject"].value if "on_reject" in given else "abort"
    verdict, file = given.get("verdict_input"), given.get("show_file", _MISSING)
    if on_reject != "skip" and not any(one.lower() in {"reject", "abort"} for one in options):
        reader.report.problem(
            given["options"].line,
            f"the gate {common.id!r} can't be rejected: add 'reject' to its options, "
            "or on_reject: skip",
        )
    if verdict:
        _check_verdict(reader, verdict, common, scope, retry=on_reject == "retry")
    return GateStep(
        common,
        reader.value(given.get("message")),
        options,
        on_reject,
        show_file=reader.template(file) if file.value is not None else None,
        verdict_input=verdict.text if verdict else None,
    )


def _check_verdict(
    reader: StepReader, node: YamlNode, common: Common, scope: Scope, *, retry: bool
) -> None:
    what = f"'verdict_input' of the gate {common.id!r}"
    if scope.in_fan_out:
        reader.report.problem(
            node.line, f"{what} would decide for every item; put the gate outside of the fan-out"
        )
    elif reader.inputs is not None and node.text not in reader.inputs:
        there = reader.report.instead(node.text, reader.inputs)
        reader.report.problem(node.line, f"{what} names no input: {shown(node.text)}; {there}")
    elif reader.inputs is not None:
        enum = reader.inputs[node.text].enum
        if retry and enum is not None and "" not in enum:
            reader.report.problem(
                node.line,
                f"{what} is emptied when the gate is rejected; "
                "add '' to the enum of the input, or don't retry",
            )


def _if(reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope) -> Step:
    return If(
        common,
        reader.condition(given.get("condition", _MISSING)),
        reader.steps(given.get("then"), scope.beneath()),
        reader.steps(given.get("else"), scope.beneath()),
    )


def _switch(reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope) -> Step:
    cases = given.get("cases", _MISSING).pairs.values()
    return Switch(
        common,
        reader.value(given.get("expression")),
        tuple((_case_text(key), reader.steps(listed, scope.beneath())) for key, listed in cases),
        reader.steps(given.get("default"), scope.beneath()),
    )


def _case_text(key: YamlNode) -> str:
    """Return the text that a value must have to match the case.

    A number or `true` is written as Python does; all else, `yes` too, as it is in the file.
    """
    is_word = isinstance(key.value, bool) and key.text.lower() not in {"true", "false"}
    return key.text if is_word else str(key.value)


def _loop(reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope) -> Step:
    return Loop(
        common,
        reader.condition(given.get("condition", _MISSING)),
        reader.steps(given.get("steps"), scope.beneath()),
        max_iterations=given["max_iterations"].value
        if "max_iterations" in given
        else MAX_ITERATIONS,
        at_least_once=common.type == "do-while",
    )


def _fan_out(reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope) -> Step:
    what = f"the fan-out {common.id!r}"
    if "step" in given and "steps" in given:
        reader.report.problem(
            given["steps"].line, f"{what} has both 'step' and 'steps'; put the one into the other"
        )
    elif "step" not in given and "steps" not in given:
        reader.report.problem(
            common.line, f"{what} needs 'step' or 'steps': what is done for each item"
        )
    template = scope.template()
    single = reader.step(given["step"], template, "item") if "step" in given else None
    items = reader.value(given.get("items"))
    if "items" in given and not isinstance(items, (ExpressionText, list)):
        reader.report.warn(
            given["items"].line,
            f"'items' of {what} is {shown(items)}, which is no list; "
            "an expression stands in {{ }}",
        )
    steps = (single,) if single else reader.steps(given.get("steps"), template)
    if common.worktree:
        _check_tree_steps(reader, steps, what)
    return FanOut(
        common,
        items,
        steps,
        max_concurrency=reader.value(given["max_concurrency"]) if "max_concurrency" in given else 1,
        min_success=given.get("min_success", _MISSING).value,
        max_failures=given.get("max_failures", _MISSING).value,
        canary=_canary(reader, given.get("canary"), what),
        key=reader.optional(given.get("key")),
        template=given["step"].plain() if "step" in given else None,
    )


def _check_tree_steps(reader: StepReader, steps: Sequence[Step], what: str) -> None:
    """Report steps that would work in the item's tree at the same time, or beside it."""
    for step in every(steps):
        common = step.common
        if isinstance(step, (FanOut, CallStep)) or common.needs is not None or common.worktree:
            why = "'needs'" if common.needs is not None else f"a {common.type}"
            why = "a worktree of its own" if common.worktree else why
            reader.report.problem(
                common.line,
                f"the step {common.id!r} has {why}, and {what} has one worktree for each item, "
                "in which its steps work one after the other",
            )


def _canary(reader: StepReader, node: YamlNode | None, what: str) -> Canary | None:
    if node is None:
        return None
    refuse_unknown(node, step_words.CANARY, "a canary", reader.report)
    given = fitting(node, step_words.CANARY, f"the canary of {what}", reader.report)
    part = float(given["min_success"].value) if "min_success" in given else 1.0
    return Canary(given["items"].value if "items" in given else 1, part)


def _fan_in(reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope) -> Step:
    waited = given.get("wait_for", _MISSING).entries
    for one in waited:
        if one.text == common.id:
            reader.report.problem(
                one.line, f"the fan-in {common.id!r} waits for itself; name earlier steps"
            )
        elif one.text not in scope.seen:
            earlier = (name for name in scope.seen if name != common.id)
            reader.report.problem(
                one.line,
                f"the fan-in {common.id!r} waits for {shown(one.text)}, "
                f"which is no earlier step here; {reader.report.instead(one.text, earlier)}",
            )
    return FanIn(common, tuple(one.text for one in waited), reader.mapping(given.get("output")))


def _slot(reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope) -> Step:
    if scope.in_fan_out:
        reader.report.problem(
            common.line,
            f"the slot {common.id!r} stands in a fan-out, where no overlay can fill it; "
            "put it outside",
        )
    return SlotStep(common, given.get("name", _MISSING).text)


def _sample(reader: StepReader, given: dict[str, YamlNode], common: Common, _: Scope) -> Step:
    node = given.get("sample", _MISSING)
    facts = reader.mapping(node)
    if reader.check_sample is not None and "sample" in given:
        plain = {
            key: None if _has_expression(facts[key]) else one.plain() for key, one in node.items()
        }
        prompt = node.get("prompt")
        if prompt is not None and isinstance(prompt.value, str):
            plain["prompt"] = prompt.text
        if fault := reader.check_sample(plain):
            reader.report.problem(node.line, f"the sample {common.id!r}: {fault}")
    return Sample(common, facts)


def _has_expression(value: Value) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, ExpressionText) or any(map(_has_expression, parts))


def _call(
    reader: StepReader, given: dict[str, YamlNode], common: Common, scope: Scope
) -> Step | None:
    node = given.get("workflow")
    workflow = reader.inner(node, scope.level) if node else None
    if node is None or workflow is None:
        return None
    inputs = given.get("input", _MISSING)
    names = {one.name: one for one in workflow.inputs}
    for key in inputs.pairs:
        if key not in names:
            there = reader.report.instead(key, names)
            reader.report.problem(
                inputs.line_of(key), f"{node.text} has no input {shown(key)}; {there}"
            )
    for name, one in names.items():
        if one.required and not one.has_default and name not in inputs.pairs:
            reader.report.problem(
                common.line, f"the step {common.id!r} must give {node.text} its input {name!r}"
            )
    return CallStep(common, node.text, workflow, reader.mapping(inputs))


READERS: Final[dict[str, ReadStep]] = {
    "command": _command,
    "prompt": _prompt,
    "agent": _agent,
    "shell": _shell,
    "python": _python,
    "gate": _gate,
    "if": _if,
    "switch": _switch,
    "while": _loop,
    "do-while": _loop,
    "fan-out": _fan_out,
    "fan-in": _fan_in,
    "sample": _sample,
    "workflow": _call,
    "slot": _slot,
}

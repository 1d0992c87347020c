"""Static analysis of a workflow: its outline, gates, lanes, agents, and which step reads what."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from abreast.jobs.files.expressions import ExpressionFailed
from abreast.jobs.workflow.spec import (
    CallStep,
    Command,
    FanIn,
    FanOut,
    GateStep,
    If,
    Loop,
    Prompt,
    Step,
    Switch,
    Workflow,
)
from abreast.jobs.workflow.steps.values import reads, resolve


def beneath(step: Step) -> tuple[Step, ...]:
    """Return the steps directly inside a step."""
    if isinstance(step, If):
        return (*step.then, *step.otherwise)
    if isinstance(step, Switch):
        return (*(one for _, steps in step.cases for one in steps), *step.default)
    if isinstance(step, (Loop, FanOut)):
        return step.steps
    return step.workflow.steps if isinstance(step, CallStep) else ()


def outline(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return the steps in JSON's types: id, type, needs, budget, and the named lists in them."""
    return [
        {
            "id": common.id,
            "type": common.type,
            "needs": None if common.needs is None else list(common.needs),
            "budget": common.budget is not None,
            "beneath": [[name, outline(listed)] for name, listed in _lists(step) if listed],
        }
        for step in steps
        for common in [step.common]
    ]


def _lists(step: Step) -> list[tuple[str, tuple[Step, ...]]]:
    if isinstance(step, If):
        return [("then", step.then), ("else", step.otherwise)]
    if isinstance(step, Switch):
        return [*step.cases, ("default", step.default)]
    return [("", beneath(step))]


def every(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield all steps, and those inside them, in the order of the file."""
    for step in steps:
        yield step
        yield from every(beneath(step))


def gates_of(steps: Iterable[Step]) -> frozenset[str]:
    """Return the ids of the gates."""
    return frozenset(step.common.id for step in every(steps) if isinstance(step, GateStep))


def lanes_of(steps: Iterable[Step]) -> dict[str, int]:
    """Return the lanes that steps name, each with the line of the first that does."""
    found: dict[str, int] = {}
    for step in every(steps):
        if step.common.lane is not None:
            found.setdefault(step.common.lane, step.common.line)
    return found


class Agent(NamedTuple):
    """A step that an agent runs, and the agent's name."""

    file: str
    step: Prompt | Command
    name: str | None
    """Empty if none is named; None if it is known only in the run."""


def agents_of(workflow: Workflow, inputs: Mapping[str, Any] | None = None) -> Iterator[Agent]:
    """Yield the steps that an agent may run, those of called files included.

    The value of an expression that names an agent is known once there are `inputs`, if it reads
    nothing else.
    """
    for flow in files_of(workflow):
        given = inputs if flow is workflow else None
        for step in own_steps(flow.steps):
            if isinstance(step, (Prompt, Command)):
                yield Agent(flow.file, step, _agent(step, flow, given))


def _agent(step: Prompt | Command, flow: Workflow, inputs: Mapping[str, Any] | None) -> str | None:
    # The name is shown in messages, so it must not come from a secret.
    hidden = {("inputs",), *(("inputs", one.name) for one in flow.inputs if one.secret)}
    for value in (step.integration, flow.integration):
        read = {path[:2] for path in reads([value])}
        if read and (inputs is None or read & hidden or {path[0] for path in read} != {"inputs"}):
            return None
        try:
            found = resolve(value, {"inputs": dict(inputs or {})})
        except ExpressionFailed:
            return None
        if found not in (None, ""):
            return found if isinstance(found, str) else None
    return ""


def files_of(workflow: Workflow) -> Iterator[Workflow]:
    """Yield the workflow, and those that its steps call."""
    yield workflow
    for step in own_steps(workflow.steps):
        if isinstance(step, CallStep):
            yield from files_of(step.workflow)


def own_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield all steps of one file, those inside others included."""
    for step in steps:
        yield step
        if not isinstance(step, CallStep):
            yield from own_steps(beneath(step))


def affected_by(changed: set[tuple[str, str]], steps: Iterable[Step]) -> list[str]:
    """Return the ids of the steps that read one of these names, directly or through other steps.

    They are in the file's order.
    """
    found: list[str] = []
    all_steps = [step for step in every(steps) if not isinstance(step, CallStep)]
    names = set(changed)
    growing = True
    while growing:
        growing = False
        for step in all_steps:
            name = step.common.id
            if name not in found and _reads_any(step, names):
                found.append(name)
                names.add(("steps", name))
                growing = True
    order = {step.common.id: place for place, step in enumerate(all_steps)}
    return sorted(found, key=order.__getitem__)


def _reads_any(step: Step, names: set[tuple[str, str]]) -> bool:
    seen = {path[:2] for path in reads([step])}
    if isinstance(step, FanIn):
        seen |= {("steps", name) for name in step.wait_for}
    elif isinstance(step, GateStep) and step.verdict_input:
        seen.add(("inputs", step.verdict_input))
    roots = {root for root, _ in names}
    return bool(seen & names) or any(len(path) == 1 and path[0] in roots for path in seen)

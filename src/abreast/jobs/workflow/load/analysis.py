"""Static analysis of a workflow: its outline, gates, lanes, agents, and which step reads what.

It also finds paths in expressions that are always null because a name in them does not exist.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from abreast.jobs.files.expressions import ExpressionFailed
from abreast.jobs.workflow.load import step_words
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
    return tuple(one for _, steps in _lists(step) for one in steps)


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
    if isinstance(step, (Loop, FanOut)):
        return [("", step.steps)]
    return [("", step.workflow.steps)] if isinstance(step, CallStep) else []


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
    left = [step for step in every(steps) if not isinstance(step, CallStep)]
    order = {step.common.id: place for place, step in enumerate(left)}
    names = set(changed)
    while found := {step.common.id for step in left if _reads_any(step, names)}:
        names |= {("steps", name) for name in found}
        left = [step for step in left if step.common.id not in found]
    return sorted(order.keys() - {step.common.id for step in left}, key=order.__getitem__)


def _reads_any(step: Step, names: set[tuple[str, str]]) -> bool:
    seen = {path[:2] for path in reads([step])}
    if isinstance(step, FanIn):
        seen |= {("steps", name) for name in step.wait_for}
    elif isinstance(step, GateStep) and step.verdict_input:
        seen.add(("inputs", step.verdict_input))
    roots = {root for root, _ in names}
    return bool(seen & names) or any(len(path) == 1 and path[0] in roots for path in seen)


Instead: TypeAlias = Callable[[str, Iterable[str]], str]
"""Returns a sentence with the names that exist instead of a given one."""


class KnownNames:
    """The names that the expressions of one file can read."""

    def __init__(
        self, ids: Iterable[str], steps: Iterable[Step], inputs: Mapping[str, object] | None
    ) -> None:
        """`inputs` is None if they are invalid themselves: expressions on them are not checked."""
        self._ids = sorted(ids)
        self._inputs = inputs
        self._outputs: dict[str, frozenset[str] | None] = {}
        for step in own_steps(steps):
            name, found = step.common.id, outputs_of(step)
            before = self._outputs.get(name, frozenset())
            self._outputs[name] = None if found is None or before is None else found | before

    def faults(self, path: tuple[str, ...], instead: Instead) -> Iterator[str]:
        """Yield what is wrong with a path, each in one sentence."""
        root, name = path[0], path[1] if len(path) > 1 else None
        if root not in step_words.NAMESPACES:
            text = ".".join(str(part) for part in path)
            hint = instead(root, step_words.NAMESPACES)
            yield f"{text} is always null, as there is no {root!r} in expressions; {hint}"
        if not isinstance(name, str):
            return
        if root == "inputs" and self._inputs is not None and name not in self._inputs:
            hint = instead(name, self._inputs)
            yield f"inputs.{name} is always null, as there is no such input; {hint}"
        if root == "steps" and name.partition(":")[0] not in self._ids:
            hint = instead(name, self._ids)
            yield f"steps.{name} is always null, as there is no such step; {hint}"
        elif root == "steps":
            yield from self._step_faults(name, path[2:], instead)

    def _step_faults(self, name: str, rest: tuple[str, ...], instead: Instead) -> Iterator[str]:
        fact, key = (*rest, None, None)[:2]
        if isinstance(fact, str) and fact not in step_words.FACTS:
            hint = instead(fact, step_words.FACTS)
            yield f"steps.{name}.{fact} is always null, as no step has it; {hint}"
        known = self._outputs.get(name)
        if fact == "output" and isinstance(key, str) and known is not None and key not in known:
            hint = instead(key, sorted(known))
            yield f"steps.{name}.output.{key} is always null, as that step gives none; {hint}"


def outputs_of(step: Step) -> frozenset[str] | None:
    """Return the names in a step's output; None if they are known only once it has run."""
    known = step_words.OUTPUTS.get(step.common.type)
    calls = step.workflow.outputs if isinstance(step, CallStep) else {}
    own = step.output if isinstance(step, FanIn) else calls
    return None if known is None else known | own.keys()

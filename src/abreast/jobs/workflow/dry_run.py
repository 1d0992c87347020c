"""The dry run of a workflow: how often each step runs at most, without running any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from abreast.jobs.files.expressions import ExpressionFailed
from abreast.jobs.workflow.load.analysis import beneath
from abreast.jobs.workflow.spec import CallStep, FanOut, Loop, Sample, Step, Value
from abreast.jobs.workflow.steps.values import as_width, reads, resolve


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step: its depth in the file, and how often it runs at most."""

    step: Step
    depth: int
    times: int
    per: tuple[str, ...] = ()
    """Fan-outs whose number of items isn't known yet: `times` is for one item of each."""
    width: int | None = None
    """How many items run at once, where the file and the inputs decide it."""

    @property
    def calls(self) -> int:
        """How many calls the step makes at most; each draw of a sample counts."""
        if isinstance(self.step, Sample):
            breadth, depth = (self.step.facts.get(word, 1) for word in ("breadth", "depth"))
            if isinstance(breadth, int) and isinstance(depth, int):
                return self.times * breadth * depth
        return self.times

    @property
    def count(self) -> str:
        """How often it runs, as text."""
        return f"{self.times} x" + " x".join(f" items of {name}" for name in self.per)


def widest(steps: Sequence[Step], inputs: Mapping[str, Any]) -> int:
    """Return the largest `max_concurrency` that the file and the inputs decide.

    1 if there is no fan-out.
    """
    inner = (widest(beneath(step), {} if isinstance(step, CallStep) else inputs) for step in steps)
    fan_outs = (step.max_concurrency for step in steps if isinstance(step, FanOut))
    return max([1, *inner, *(as_width(_resolve_early(own, inputs)) for own in fan_outs)])


def plan(
    steps: Sequence[Step],
    inputs: Mapping[str, Any],
    depth: int = 0,
    times: int = 1,
    per: tuple[str, ...] = (),
) -> list[PlannedStep]:
    """Return every step in the file's order; the last three arguments are for steps in others.

    Both branches of an `if` count, as it is not known which of them will run.
    """
    found: list[PlannedStep] = []
    for step in steps:
        inner_times, inner_per, width = times, per, None
        if isinstance(step, Loop):
            inner_times = times * step.max_iterations
        elif isinstance(step, FanOut):
            items = _resolve_early(step.items, inputs)
            width = as_width(_resolve_early(step.max_concurrency, inputs))
            if isinstance(items, list):
                inner_times = times * len(items)
                width = min(width, len(items))
            else:
                inner_per = (*per, step.common.id)
        found.append(PlannedStep(step, depth, times, per, width))
        inner = {} if isinstance(step, CallStep) else inputs
        found += plan(beneath(step), inner, depth + 1, inner_times, inner_per)
    return found


def _resolve_early(value: Value, inputs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value of a file
    """Return the value if the inputs alone decide it, else None."""
    if any(path[0] != "inputs" for path in reads([value])):
        return None
    try:
        return resolve(value, {"inputs": dict(inputs)})
    except ExpressionFailed:
        return None

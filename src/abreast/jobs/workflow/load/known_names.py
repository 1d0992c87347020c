"""Which paths of expressions lead nowhere: a name that is not there is null, and seldom meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from abreast.jobs.workflow.load import step_words as kinds
from abreast.jobs.workflow.load.analysis import own_steps
from abreast.jobs.workflow.spec import CallStep, FanIn, Step

Instead: TypeAlias = Callable[[str, Iterable[str]], str]
"""Says what there is instead of a name."""


class KnownNames:
    """The names that the expressions of one file can reach."""

    def __init__(
        self, ids: Iterable[str], steps: Iterable[Step], inputs: Mapping[str, object] | None
    ) -> None:
        """`inputs` None: they are wrong themselves, so nothing is said about who reads them."""
        self._ids = sorted(ids)
        self._inputs = inputs
        self._outputs: dict[str, frozenset[str] | None] = {}
        for step in own_steps(steps):
            name, found = step.common.id, outputs_of(step)
            before = self._outputs.get(name, frozenset())
            self._outputs[name] = None if found is None or before is None else found | before

    def faults(self, path: tuple[str, ...], instead: Instead) -> Iterator[str]:
        """What is wrong with a path, in one sentence."""
        root, name = path[0], path[1] if len(path) > 1 else None
        if root not in kinds.NAMESPACES:
            said = ".".join(str(part) for part in path)
            yield f"{said} is always null, as there is no {root!r} in expressions; {instead(root, kinds.NAMESPACES)}"
        if not isinstance(name, str):
            return
        if root == "inputs" and self._inputs is not None and name not in self._inputs:
            yield f"inputs.{name} is always null, as there is no such input; {instead(name, self._inputs)}"
        if root == "steps" and name.partition(":")[0] not in self._ids:
            yield f"steps.{name} is always null, as there is no such step; {instead(name, self._ids)}"
        elif root == "steps":
            yield from self._of_step(name, path[2:], instead)

    def _of_step(self, name: str, rest: tuple[str, ...], instead: Instead) -> Iterator[str]:
        fact, key = (*rest, None, None)[:2]
        if isinstance(fact, str) and fact not in kinds.FACTS:
            yield f"steps.{name}.{fact} is always null, as no step has it; {instead(fact, kinds.FACTS)}"
        known = self._outputs.get(name)
        if fact == "output" and isinstance(key, str) and known is not None and key not in known:
            yield f"steps.{name}.output.{key} is always null, as that step gives none; {instead(key, sorted(known))}"


def outputs_of(step: Step) -> frozenset[str] | None:
    """The names in a step's output; None if only running it can tell."""
    known = kinds.OUTPUTS.get(step.common.type)
    if known is None:
        return None
    if isinstance(step, FanIn):
        return known | step.output.keys()
    return known | step.workflow.outputs.keys() if isinstance(step, CallStep) else known

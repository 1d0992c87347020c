"""Finds paths in expressions that are always null because a name in them does not exist."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from abreast.jobs.workflow.load import step_words
from abreast.jobs.workflow.load.analysis import own_steps
from abreast.jobs.workflow.spec import CallStep, FanIn, Step

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
    if known is None:
        return None
    if isinstance(step, FanIn):
        return known | step.output.keys()
    return known | step.workflow.outputs.keys() if isinstance(step, CallStep) else known

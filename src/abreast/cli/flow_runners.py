"""Checks that the runners of agents can pass on what steps ask of them, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from abreast.cli.config import Config
from abreast.cli.errors import Sorry
from abreast.jobs.files.expressions import ExpressionFailed
from abreast.jobs.workflow.reach import every
from abreast.jobs.workflow.steps import Command, Value, Workflow
from abreast.jobs.workflow.values import reads, resolve
from abreast.toolkit import Runner


def check_arguments(workflow: Workflow, config: Config, inputs: Mapping[str, Any] | None = None) -> None:
    """Raise `Sorry` for steps whose `integration_args` or `integration_options` a runner would not pass on.

    An agent that only an expression names is known once there are `inputs`, or else when the step runs.
    """
    asking = [
        step
        for step in every(workflow.steps)
        if isinstance(step, Command) and (step.integration_args or step.integration_options)
    ]
    if asking and (wrong := list(_refusals(asking, workflow, config.runners(), inputs))):
        raise Sorry("\n".join(f"{workflow.file}:{line}: {text}" for line, text in wrong))


def _refusals(
    steps: list[Command], workflow: Workflow, runners: Mapping[str, Runner], inputs: Mapping[str, Any] | None
) -> Iterator[tuple[int, str]]:
    for step in steps:
        name = _known(step.integration, inputs) or _known(workflow.integration, inputs)
        runner = runners.get(name) if name else None
        options = step.integration_options if isinstance(step.integration_options, dict) else {}
        refused = runner.refuses(args=bool(step.integration_args), options=options) if runner else None
        if refused:
            yield step.common.line, f"the step {step.common.id!r}: the runner {name!r} {refused}"


def _known(value: Value, inputs: Mapping[str, Any] | None) -> str | None:
    """The agent that this names, where that can be seen already."""
    roots = {path[0] for path in reads([value])}
    if roots - {"inputs"} or (roots and inputs is None):
        return None
    try:
        found = resolve(value, {"inputs": dict(inputs or {})})
    except ExpressionFailed:
        return None
    return found if isinstance(found, str) else None

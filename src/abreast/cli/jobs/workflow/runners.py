"""Checks before a run that the runners of agents can pass on the options of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from abreast.assembly.workflow_tools import Runner
from abreast.cli.config import Config
from abreast.cli.errors import UsageError
from abreast.jobs.workflow.load.analysis import Agent, agents_of
from abreast.jobs.workflow.spec import Command, Workflow


def check_arguments(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any] | None = None
) -> None:
    """Raise `UsageError` for `integration_args` or `integration_options` without a place in argv.

    The runner of such a step would not pass them on. An agent named by an expression is checked if
    `inputs` are given, or else when the step runs.
    """
    asking = [
        one
        for one in agents_of(workflow, inputs)
        if isinstance(one.step, Command)
        and (one.step.integration_args or one.step.integration_options)
    ]
    if asking and (wrong := list(_refusals(asking, config.runners()))):
        raise UsageError("\n".join(wrong))


def _refusals(agents: list[Agent], runners: Mapping[str, Runner]) -> Iterator[str]:
    for file, step, name in agents:
        runner = runners.get(name) if name else None
        if runner is None or not isinstance(step, Command):
            continue
        options = step.integration_options if isinstance(step.integration_options, dict) else {}
        refused = runner.refuses(args=bool(step.integration_args), options=options)
        if refused:
            place = f"{file}:{step.common.line}: the step {step.common.id!r}"
            yield f"{place}: the runner {name!r} {refused}"

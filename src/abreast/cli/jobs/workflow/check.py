"""Checks before a run that `abreast.toml` has the lanes, runners and bounds of a workflow."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from abreast.assembly.workflow_tools import Runner
from abreast.cli.config import Config
from abreast.cli.errors import UsageError
from abreast.cli.jobs.model_options import configured_lanes
from abreast.jobs.workflow.load.analysis import Agent, agents_of, lanes_of
from abreast.jobs.workflow.spec import Command, Workflow


def check_tables(workflow: Workflow, config: Config) -> None:
    """Raise `UsageError` if a table of the configuration is wrong, or lacks a lane of a step."""
    config.runners()
    config.workflow()
    known = configured_lanes(config)
    missing = {name: line for name, line in lanes_of(workflow.steps).items() if name not in known}
    if missing:
        raise UsageError(
            "\n".join(
                f"{workflow.file}:{line}: there is no lane {name!r}; "
                f"declare it in abreast.toml as [lanes.{name}] with width = 4"
                for name, line in missing.items()
            )
        )


def check_runners(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any] | None = None
) -> None:
    """Raise `UsageError` if a command, anywhere in the file, has no agent or one without runner."""
    known = config.runners()
    missing: dict[str, str] = {}
    for file, step, name in agents_of(workflow, inputs):
        if not isinstance(step, Command) or name is None or name in known:
            continue
        place = f"{file}:{step.common.line}"
        if not name:
            problem = (
                f"the command {step.command!r} is for an agent, and no integration says which: "
                "set integration: on the step or the workflow, "
                "and its command line under [runners.NAME]"
            )
        else:
            argv = f'argv = ["{"claude" if name == "auto" else name}", "-p", "{{prompt}}"]'
            problem = (
                f"there is no runner {name!r}; "
                f"declare it in abreast.toml as [runners.{name}] with {argv}"
            )
        missing.setdefault(name, f"{place}: {problem}")
    if missing:
        raise UsageError("\n".join(missing.values()))


def check_programs(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any], *, cwd: str
) -> None:
    """Raise `UsageError` for a step whose runner is a program that isn't installed."""
    runners = config.runners()
    for file, step, name in agents_of(workflow, inputs):
        if name in runners and not _is_program(program := runners[name].argv[0], cwd):
            raise UsageError(
                f"{file}:{step.common.line}: the runner {name!r} can't be started: "
                f"there is no command {program!r} here"
            )


def _is_program(program: str, cwd: str) -> bool:
    """Whether the program is on the PATH, or exists relative to `cwd`.

    True if its name contains a placeholder, whose value is not known yet.
    """
    path = str(Path(cwd, program)) if os.sep in program else program
    return "{" in program or shutil.which(path) is not None


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

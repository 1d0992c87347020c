"""What a workflow needs of `abreast.toml`: its lanes, its agents' runners, its bounds; seen before anything runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from abreast.cli.config import Config
from abreast.cli.errors import Sorry
from abreast.cli.prompt import lanes_here
from abreast.jobs.workflow.reach import agents_of, every, lanes_of
from abreast.jobs.workflow.steps import Command, Prompt, Workflow
from abreast.toolkit import Runner


def check_tables(workflow: Workflow, config: Config) -> None:
    """`Sorry` if the tables of the configuration can't be read, or lack a lane that a step names."""
    config.runners()
    config.workflow()
    known = lanes_here(config)
    missing = {name: line for name, line in lanes_of(workflow.steps).items() if name not in known}
    if missing:
        raise Sorry("\n".join(
            f"{workflow.file}:{line}: there is no lane {name!r}; declare it in abreast.toml as [lanes.{name}] with "
            "width = 4" for name, line in missing.items()
        ))  # fmt: skip


def check_runners(workflow: Workflow, config: Config) -> None:
    """`Sorry` if a command is for an agent that has no runner. A branch that is never taken may have such a command."""
    known = config.runners()
    missing = {name: line for name, line in agents_of(workflow).items() if name not in known}
    if missing:
        raise Sorry("\n".join(
            f"{workflow.file}:{line}: there is no runner {name!r}; declare it in abreast.toml as [runners.{name}] with "
            f'argv = ["{name}", "-p", "{{prompt}}"]' for name, line in missing.items()
        ))  # fmt: skip


def check_programs(workflow: Workflow, runners: Mapping[str, Runner], *, file: str, cwd: str) -> None:
    """`Sorry` for a step whose runner is a program that isn't installed; names made by expressions are left out."""
    for step in every(workflow.steps):
        if not isinstance(step, (Prompt, Command)):
            continue
        integration = step.integration or workflow.integration
        name = "" if integration is None else integration.text
        if name in runners and not _is_there(program := runners[name].argv[0], cwd):
            raise Sorry(
                f"{file}:{step.common.line}: the runner {name!r} can't be started: there is no command {program!r} here"
            )


def _is_there(program: str, cwd: str) -> bool:
    """Whether it is on the PATH, or at its place as seen from `cwd`; one with a field in it is not known yet."""
    if "{" in program:
        return True
    return shutil.which(str(Path(cwd, program)) if os.sep in program else program) is not None

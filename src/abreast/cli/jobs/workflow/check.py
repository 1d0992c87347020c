"""What a workflow needs of `abreast.toml`: its lanes, its agents' runners, its bounds.

Seen before anything runs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abreast.cli.config import Config
from abreast.cli.errors import UsageError
from abreast.cli.jobs.map.prompt import lanes_here
from abreast.jobs.workflow.load.analysis import agents_of, lanes_of
from abreast.jobs.workflow.spec import Command, Workflow


def check_tables(workflow: Workflow, config: Config) -> None:
    """`UsageError` if the tables of the configuration can't be read, or lack a lane that a step names."""
    config.runners()
    config.workflow()
    known = lanes_here(config)
    missing = {name: line for name, line in lanes_of(workflow.steps).items() if name not in known}
    if missing:
        raise UsageError(
            "\n".join(
                f"{workflow.file}:{line}: there is no lane {name!r}; declare it in abreast.toml as [lanes.{name}] with "
                "width = 4"
                for name, line in missing.items()
            )
        )


def check_runners(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any] | None = None
) -> None:
    """`UsageError` if a command is for an agent that has no runner, or for none, wherever in the file it stands."""
    known = config.runners()
    missing: dict[str, str] = {}
    for file, step, name in agents_of(workflow, inputs):
        if not isinstance(step, Command) or name is None or name in known:
            continue
        place = f"{file}:{step.common.line}"
        if not name:
            how = "set integration: on the step or the workflow, and its command line under [runners.NAME]"
            said = f"the command {step.command!r} is for an agent, and no integration says which: {how}"
        else:
            argv = f'argv = ["{"claude" if name == "auto" else name}", "-p", "{{prompt}}"]'
            said = f"there is no runner {name!r}; declare it in abreast.toml as [runners.{name}] with {argv}"
        missing.setdefault(name, f"{place}: {said}")
    if missing:
        raise UsageError("\n".join(missing.values()))


def check_programs(
    workflow: Workflow, config: Config, inputs: Mapping[str, Any], *, cwd: str
) -> None:
    """`UsageError` for a step whose runner is a program that isn't installed."""
    runners = config.runners()
    for file, step, name in agents_of(workflow, inputs):
        if name in runners and not _is_there(program := runners[name].argv[0], cwd):
            raise UsageError(
                f"{file}:{step.common.line}: the runner {name!r} can't be started: there is no command {program!r} here"
            )


def _is_there(program: str, cwd: str) -> bool:
    """Whether it is on the PATH, or at its place as seen from `cwd`.

    One with a field in it is not known yet.
    """
    if "{" in program:
        return True
    return shutil.which(str(Path(cwd, program)) if os.sep in program else program) is not None

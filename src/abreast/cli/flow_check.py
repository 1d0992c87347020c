"""What a workflow needs of `abreast.toml`: its lanes, its agents' runners, its bounds; seen before anything runs."""

from __future__ import annotations

from abreast.cli.config import Config
from abreast.cli.errors import Sorry
from abreast.cli.prompt import lanes_here
from abreast.jobs.workflow.reach import agents_of, lanes_of
from abreast.jobs.workflow.steps import Workflow


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

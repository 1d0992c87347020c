"""The agent that a command line or a job file names."""

from pathlib import Path

from abreast.agents.installed import is_installed
from abreast.agents.known import find_agent
from abreast.agents.runner import AgentRunner, AgentUnknown
from abreast.assembly.trees.agents import ChosenAgent
from abreast.cli.config import Config
from abreast.cli.errors import UsageError, refusing
from abreast.cli.jobs.model_options import configured_lanes


def find_chosen(
    name: str, allow: tuple[str, ...], model: str | None, folder: str, flag: str = "--agent"
) -> ChosenAgent:
    """The agent of that name, as configured in a directory; raises `UsageError` if none is."""
    with refusing(flag, AgentUnknown):
        config = Config.load(Path(folder))
        runner = find_agent(name, config.agents())
        found = ChosenAgent(runner, allow, model, configured_lanes(config))
        found.check()
    return found


def check_installed(runner: AgentRunner, folder: str) -> None:
    """Raise `UsageError` if the program of an agent is not there."""
    if not is_installed(runner, folder):
        raise UsageError(
            f"--agent: {runner.name} is not installed: there is no command {runner.program!r}; "
            "`abreast doctor` says which agents are here"
        )

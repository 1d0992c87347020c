"""Agents as integrations of a workflow, where no runner of that name is configured."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from abreast.agents.installed import is_installed
from abreast.agents.runner import AgentRunner

AUTO: Final = "auto"
"""The integration that a spec-kit project has chosen."""
_CHOICES: Final = (("integration.json", "integration"), ("init-options.json", "ai"))


def chosen_integration(folder: str | Path) -> str | None:
    """The integration that `.specify` of a directory, or of one above it, names; None if none."""
    start = Path(folder).absolute()
    for place in (start, *start.parents):
        for name, key in _CHOICES:
            try:
                facts = json.loads((place / ".specify" / name).read_text("utf-8"))
            except (OSError, ValueError):
                continue
            found = facts.get(key) if isinstance(facts, dict) else None
            if isinstance(found, str) and found:
                return found
    return None


def resolve_integration(name: str, folder: str | Path) -> str:
    """The name of an integration: `auto` is what the project has chosen, if it has."""
    return chosen_integration(folder) or name if name == AUTO else name


def find_integration(
    name: str, agents: Mapping[str, AgentRunner], folder: str | Path
) -> AgentRunner | None:
    """The agent that an integration names; None if there is none, or it is not installed."""
    runner = agents.get(resolve_integration(name, folder))
    return runner if runner is not None and is_installed(runner, str(folder)) else None

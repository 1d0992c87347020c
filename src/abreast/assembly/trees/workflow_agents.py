"""Agents as integrations of a workflow, where no runner of that name is configured."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from abreast.agents.installed import is_installed
from abreast.agents.runner import AgentRunner

AUTO: Final = "auto"
"""The integration that a spec-kit project has chosen."""
_SETTINGS: Final = "integration.json"
_CHOICES: Final = ((_SETTINGS, "integration"), ("init-options.json", "ai"))
_COMMAND: Final = "/speckit."
_DOLLAR: Final = frozenset({"codex"})  # agents whose skills are called as `$name`


def chosen_integration(folder: str | Path) -> str | None:
    """The integration that `.specify` of a directory, or of one above it, names; None if none."""
    for place in _above(folder):
        for name, key in _CHOICES:
            found = _facts(place, name).get(key)
            if isinstance(found, str) and found:
                return found
    return None


def _above(folder: str | Path) -> tuple[Path, ...]:
    start = Path(folder).absolute()
    return (start, *start.parents)


def _facts(place: Path, name: str) -> dict[str, Any]:
    """What a file of `.specify` says; empty if it is not there, or is no JSON."""
    try:
        facts = json.loads((place / ".specify" / name).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def project_command(prompt: str, integration: str, folder: str | Path) -> str:
    """A command of spec-kit by the name that it has in a project: `/speckit-plan` for a skill.

    `.specify/integration.json` says whether commands are skills. Other prompts stay as they are.
    """
    if not prompt.startswith(_COMMAND):
        return prompt
    name = resolve_integration(integration, folder)
    settings = next((found for one in _above(folder) if (found := _facts(one, _SETTINGS))), {})
    listed = settings.get("integration_settings")
    own = listed.get(name) if isinstance(listed, dict) else None
    if not isinstance(own, dict) or own.get("invoke_separator") != "-":
        return prompt
    word, space, rest = prompt.partition(" ")
    mark = "$" if name in _DOLLAR else "/"
    return f"{mark}{word[1:].replace('.', '-')}{space}{rest}"


def resolve_integration(name: str, folder: str | Path) -> str:
    """The name of an integration: `auto` is what the project has chosen, if it has."""
    return chosen_integration(folder) or name if name == AUTO else name


def find_integration(
    name: str, agents: Mapping[str, AgentRunner], folder: str | Path
) -> AgentRunner | None:
    """The agent that an integration names; None if there is none, or it is not installed."""
    runner = agents.get(resolve_integration(name, folder))
    return runner if runner is not None and is_installed(runner, str(folder)) else None

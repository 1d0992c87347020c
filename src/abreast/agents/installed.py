"""Which agents are installed, which version, and whether they are signed in."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abreast.agents.runner import AgentRunner

_TIMEOUT: Final = 10.0  # seconds for one of its commands


@dataclass(frozen=True, slots=True)
class AgentState:
    """What is known of an agent on this machine."""

    name: str
    path: str | None = None
    """Where its program is; None if it is not installed."""
    version: str = ""
    signed_in: bool | None = None
    """None if that can't be found out."""
    by_key: str = ""
    """The environment variable with a key that it would use."""

    def sentence(self) -> str:
        """All of it in words."""
        if self.path is None:
            return "not installed"
        how = (
            f"with the key in {self.by_key}"
            if self.by_key
            else {True: "signed in", False: "not signed in", None: "account unknown"}[
                self.signed_in
            ]
        )
        return f"{self.version or 'version unknown'}, {how}, at {self.path}"


def look_for(agents: Iterable[AgentRunner]) -> list[AgentState]:
    """Look for each agent, side by side; waits for what they print, at most ten seconds each."""
    listed = list(agents)
    with ThreadPoolExecutor(max(1, len(listed))) as threads:
        return list(threads.map(look_for_one, listed))


def is_installed(agent: AgentRunner, folder: str) -> bool:
    """Whether its program is on the PATH, or where its name leads from a directory."""
    program = agent.program
    return shutil.which(str(Path(folder, program)) if "/" in program else program) is not None


def look_for_one(agent: AgentRunner) -> AgentState:
    """Look for one agent."""
    path = shutil.which(agent.program)
    if path is None:
        return AgentState(agent.name)
    printed = _first_line(agent.version)
    key = next((name for name in agent.keys if os.environ.get(name)), "")
    signed_in = None
    if agent.account:
        found = _run(agent.account)
        signed_in = None if found is None else found.returncode == 0
    return AgentState(agent.name, path, printed, signed_in, "" if signed_in else key)


def _first_line(command: tuple[str, ...]) -> str:
    found = _run(command) if command else None
    lines: Iterator[str] = iter(())
    if found is not None and not found.returncode:
        lines = (line.strip() for line in found.stdout.splitlines())
    return next((line for line in lines if line), "")


def _run(command: tuple[str, ...]) -> "subprocess.CompletedProcess[str] | None":
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None

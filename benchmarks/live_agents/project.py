"""A repository with agents that work on it: live ones, or replayed ones."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.live_agents import replayed
from benchmarks.live_agents.repository import AGENTS, WIDTH, edits, make_repository
from benchmarks.served_clients import environment

MODELS = {"claude": "claude-sonnet-4-5", "codex": "gpt-5"}
PATIENCE = 600.0  # seconds until a command that should end by itself is taken to hang
_CODEX = """\
[agents.codex]
argv = ["codex", "exec", "--json", "--skip-git-repo-check", {options}, "{{options}}", "-"]
resume = [
  "codex", "exec", "--json", "--skip-git-repo-check", {options}, "{{options}}",
  "resume", "{{session}}", "-",
]
"""
_REPLAYED = """\
[agents.{name}]
argv = {words}
resume = []
"""


@dataclass(frozen=True, slots=True)
class AgentProject:
    """Where agents of one name work, what each is told, and the environment of abreast."""

    name: str
    folder: Path
    env: Mapping[str, str]
    task: Callable[[int], str]

    def git(self, *words: str) -> str:
        """Run git in the project."""
        done = subprocess.run(
            ["git", *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout

    def abreast(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run abreast in the project."""
        return subprocess.run(
            [sys.executable, "-m", "abreast", *words],
            cwd=self.folder,
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )

    def map_words(self) -> list[str]:
        """The map of all agents, without its input."""
        return [
            *("map", "--agent", self.name, "--worktree", "--allow", "run", "-m", MODELS[self.name]),
            *("--prompt", "{}", "-P", str(WIDTH), "--json", "--timeout", "5min"),
        ]

    def tasks(self) -> str:
        """The input: a line for each agent."""
        return "\n".join(map(self.task, range(AGENTS)))

    def let_finish(self, below: int) -> None:
        """Let replayed agents with a lower number finish; the others stop half-way."""
        if "NOTES" in self.env:
            Path(self.env["NOTES"], "free").write_text(str(below))

    @property
    def cache(self) -> Path:
        """Where worktrees are made."""
        return Path(self.env["ABREAST_CACHE"])


def live_project(name: str, folder: Path, bin_folder: Path, urls: Sequence[str]) -> AgentProject:
    """A project of agents that npm installed, which call the storms at two addresses."""
    made = folder / name
    make_repository(made)
    words = [
        *("-c", "model_provider=served", "-c", 'model_providers.served.name="served"'),
        *("-c", f"model_providers.served.base_url={urls[1]}/v1"),
        *("-c", 'model_providers.served.env_key="OPENAI_API_KEY"'),
        *("-c", 'model_providers.served.wire_api="responses"'),
    ]
    toml = _CODEX.format(options=", ".join(map(json.dumps, words)))
    (made / "abreast.toml").write_text(toml)
    more = {
        "PATH": os.pathsep.join([str(bin_folder), os.environ["PATH"]]),
        "ANTHROPIC_BASE_URL": urls[0],
        "ABREAST_CACHE": str(folder / "cache"),
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    tasks = {"claude": _claude_task, "codex": _codex_task}
    return AgentProject(name, made, {**environment(folder), **more}, tasks[name])


def _claude_task(number: int) -> str:
    given = {"command": edits(number), "description": "Write"}
    return f"call Bash with {json.dumps(given)} please"


def _codex_task(number: int) -> str:
    return f"call exec_command with {json.dumps({'cmd': edits(number)})} please"


def replayed_project(name: str, folder: Path, recording: Path) -> AgentProject:
    """A project of agents that do what was recorded; their notes are in `notes` beside it."""
    made = folder / name
    make_repository(made)
    words = json.dumps([sys.executable, "-I", "-S", replayed.__file__, str(recording)])
    (made / "abreast.toml").write_text(_REPLAYED.format(name=name, words=words))
    (folder / "notes").mkdir()
    more = {"ABREAST_CACHE": str(folder / "cache"), "NOTES": str(folder / "notes")}
    return AgentProject(name, made, {**environment(folder), **more}, str)

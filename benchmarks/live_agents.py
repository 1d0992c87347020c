"""Ten real agents side by side, each in a tree: `python -m benchmarks.live_agents DIRECTORY`.

The agents that npm installed in the directory work on a small repository. A storm's scripted
replies make each of them write to a file that all share and to one of its own. The key is
invented, the home is empty, and all addresses are of this machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from abreast.core.events import CALL_SETTLED, CALL_STARTED
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from abreast.testing.storm import start_process
from benchmarks.served_clients import environment

_AGENTS = 10
_WIDTH = 4
_CODEX = """\
[agents.codex]
argv = ["codex", "exec", "--json", "--skip-git-repo-check", {options}, "{{options}}", "-"]
"""


class Trial:
    """One agent, ten times."""

    def __init__(self, name: str, folder: Path, bin_folder: Path, urls: Sequence[str]) -> None:
        self.name = name
        self.project = folder / name
        self.project.mkdir()
        self._env = {
            **environment(folder),
            "PATH": os.pathsep.join([str(bin_folder), os.environ["PATH"]]),
            "ANTHROPIC_BASE_URL": urls[0],
            "ABREAST_CACHE": str(folder / "cache"),
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        words = [
            *("-c", "model_provider=served", "-c", 'model_providers.served.name="served"'),
            *("-c", f"model_providers.served.base_url={urls[1]}/v1"),
            *("-c", 'model_providers.served.env_key="OPENAI_API_KEY"'),
            *("-c", 'model_providers.served.wire_api="responses"'),
        ]
        toml = _CODEX.format(options=", ".join(map(json.dumps, words)))
        (self.project / "abreast.toml").write_text(toml)
        (self.project / "shared.txt").write_text("one\n")
        (self.project / "calm.txt").write_text("calm\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=me", "-c", "user.email=me@example.org", "commit", "-qm", "start")

    def git(self, *words: str) -> str:
        """Run git in the project."""
        done = subprocess.run(
            ["git", *words], cwd=self.project, check=True, capture_output=True, text=True
        )
        return done.stdout

    def abreast(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run abreast in the project."""
        return subprocess.run(
            [sys.executable, "-m", "abreast", *words],
            cwd=self.project,
            env=self._env,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def task(self, number: int) -> str:
        """A prompt that makes the storm call the agent's tool for commands."""
        shared = f"echo by-{number} >> shared.txt; " if number < 2 else ""
        command = f"{shared}echo {number} > own-{number}.txt"
        if self.name == "codex":
            return f"call exec_command with {json.dumps({'cmd': command})} please"
        return f"call Bash with {json.dumps({'command': command, 'description': 'Write'})} please"

    def run(self) -> dict[str, Any]:
        """Run the agents, merge what they did; return what is to be shown."""
        model = "claude-sonnet-4-5" if self.name == "claude" else "gpt-5"
        tasks = "\n".join(map(self.task, range(_AGENTS)))
        before = self.git("status", "--porcelain")
        ran = self.abreast(
            *("map", "--agent", self.name, "--worktree", "--allow", "run", "-m", model),
            *("--prompt", "{}", "-P", str(_WIDTH), "--json", "--timeout", "5min"),
            given=tasks,
        )
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        done = [row for row in rows if row["state"] == "done"]
        untouched = self.git("status", "--porcelain") == before
        blocked = json.loads(self.abreast("plan", "apply", "last", "--json").stdout or "{}")
        self.abreast("plan", "resolve", "last", "shared.txt", "--take", "0001")
        applied = self.abreast("plan", "apply", "last")
        own = [self.project / f"own-{number}.txt" for number in range(_AGENTS)]
        return {
            "agent": self.name,
            "done": len(done),
            "peak": peak_of(self.project / ".abreast" / "abreast.db"),
            "usd": sum(row.get("usd") or 0 for row in done),
            "turns": sum(row["value"]["agent"]["turns"] for row in done),
            "untouched": untouched,
            "conflicts": [one["file"] for one in blocked.get("conflicts", ())],
            "applied": applied.returncode == 0 and all(path.exists() for path in own),
            "said": ran.stderr.strip().splitlines()[-2:],
        }


def peak_of(store: Path) -> int:
    """How many agents ran at once, by the journal of the newest run."""
    now = most = 0
    with closing(SqliteStore(str(store))) as opened:
        run = opened.runs(limit=1)[0].id
        for event in each_event(opened, run, {CALL_STARTED, CALL_SETTLED}):
            now += 1 if event.kind == CALL_STARTED else -1
            most = max(most, now)
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", type=Path, help="where npm installed the agents")
    parser.add_argument("--only", choices=("claude", "codex"))
    given = parser.parse_args()
    place = given.agents.resolve() / "node_modules" / ".bin"
    names = [given.only] if given.only else ["claude", "codex"]
    failed = False
    with (
        start_process() as storm,
        start_process(strict="openai-responses") as strict,
        tempfile.TemporaryDirectory() as folder,
    ):
        for name in names:
            found = Trial(name, Path(folder), place, [storm.url, strict.url]).run()
            well = (
                found["done"] == _AGENTS
                and found["peak"] == _WIDTH
                and found["untouched"]
                and found["conflicts"] == ["shared.txt"]
                and found["applied"]
            )
            failed = failed or not well
            print(json.dumps(found))
    sys.exit(failed)


if __name__ == "__main__":
    main()

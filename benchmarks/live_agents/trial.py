"""One agent, ten times: run side by side, merged and applied."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from abreast.core.events import CALL_SETTLED, CALL_STARTED
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from benchmarks.live_agents.recording import recorded, wrap, write_recording
from benchmarks.live_agents.repository import (
    AGENTS,
    SHARED,
    WIDTH,
    edits,
    line_of,
    make_repository,
    own_file,
    without_markers,
)
from benchmarks.served_clients import environment

_CODEX = """\
[agents.codex]
argv = ["codex", "exec", "--json", "--skip-git-repo-check", {options}, "{{options}}", "-"]
"""
MODELS = {"claude": "claude-sonnet-4-5", "codex": "gpt-5"}


class Trial:
    """Ten agents of one name in a repository of their own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        bin_folder: Path,
        urls: Sequence[str],
        *,
        record: Path | None = None,
    ) -> None:
        self.name = name
        self.project = folder / name
        self._printed = folder / f"printed-{name}"
        self._record = record
        make_repository(self.project)
        if record is not None:
            bin_folder = wrap(name, bin_folder, self._printed)
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
        command = edits(number)
        if self.name == "codex":
            return f"call exec_command with {json.dumps({'cmd': command})} please"
        return f"call Bash with {json.dumps({'command': command, 'description': 'Write'})} please"

    def run(self) -> dict[str, Any]:
        """Run the agents, merge what they did; return what is to be shown."""
        tasks = "\n".join(map(self.task, range(AGENTS)))
        before = self.git("status", "--porcelain")
        ran = self.abreast(
            *("map", "--agent", self.name, "--worktree", "--allow", "run", "-m", MODELS[self.name]),
            *("--prompt", "{}", "-P", str(WIDTH), "--json", "--timeout", "5min"),
            given=tasks,
        )
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        done = [row for row in rows if row["state"] == "done"]
        untouched = self.git("status", "--porcelain") == before
        changed = [row["value"]["tree"]["changed"] for row in done]
        blocked = json.loads(self.abreast("plan", "apply", "last", "--json").stdout or "{}")
        conflicts = [[one["file"], *one["parts"]] for one in blocked.get("conflicts", ())]
        if self._record is not None and len(done) == AGENTS:
            found = recorded(rows, self.project, self._printed)
            write_recording(self._record / f"ten-{self.name}.jsonl", found)
        both = without_markers(self.abreast("plan", "resolve", "last", SHARED).stdout)
        self.abreast("plan", "resolve", "last", SHARED, "--take", "edit", "--from", "-", given=both)
        applied = self.abreast("plan", "apply", "last")
        return {
            "agent": self.name,
            "done": len(done),
            "peak": peak_of(self.project / ".abreast" / "abreast.db"),
            "usd": sum(row.get("usd") or 0 for row in done),
            "turns": sum(row["value"]["agent"]["turns"] for row in done),
            "untouched": untouched,
            "changed": changed == [[own_file(one), SHARED] for one in range(AGENTS)],
            "conflicts": conflicts,
            "applied": applied.returncode == 0 and self._is_merged(),
            "said": ran.stderr.strip().splitlines()[-2:],
        }

    def _is_merged(self) -> bool:
        """Whether the work of all is in the tree."""
        lines = (self.project / SHARED).read_text().splitlines()
        wanted = map(line_of, range(AGENTS))
        own = [self.project / own_file(number) for number in range(AGENTS)]
        return all(line in lines for line in wanted) and all(path.exists() for path in own)


def peak_of(store: Path) -> int:
    """How many agents ran at once, by the journal of the newest run."""
    now = most = 0
    with closing(SqliteStore(str(store))) as opened:
        run = opened.runs(limit=1)[0].id
        for event in each_event(opened, run, {CALL_STARTED, CALL_SETTLED}):
            now += 1 if event.kind == CALL_STARTED else -1
            most = max(most, now)
    return most

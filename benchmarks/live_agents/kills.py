"""Kills the driver of ten agents with SIGKILL, resumes it, and looks at what is left.

`python -m benchmarks.live_agents.kills [--rounds 10] [--seed N] [--agents DIRECTORY]`

Each round has a repository of its own, and one to three kills at moments that the seed chooses.
The agents are replayed from recordings; with `--agents` they are the claude that npm installed
there, with scripted replies.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from abreast.agents.process import MARK
from abreast.store.sqlite.store import SqliteStore
from abreast.testing.storm import start_process
from benchmarks.live_agents.project import (
    PATIENCE,
    AgentProject,
    live_project,
    replayed_project,
)
from benchmarks.live_agents.repository import AGENTS, CONFLICT, SHARED
from benchmarks.live_agents.trial import changes_are_right
from benchmarks.peers import ROOT

RECORDED = ROOT / "tests" / "agents" / "recorded"
MOST_KILLS = 3
LONGEST_WAIT = 0.5  # seconds between the moment that a kill waits for and the kill, at most
_PAUSE = 0.005  # seconds between two looks at the journal


@dataclass(slots=True)
class KillRound:
    """What a round came to."""

    kills: list[str] = field(default_factory=list)
    """How many agents were finished at each kill, of how many that had begun."""
    repeated: list[str] = field(default_factory=list)
    """Finished agents that ran again."""
    runs: int = 0
    """Runs of agents in all."""
    left: list[str] = field(default_factory=list)
    """Worktrees, processes, branches and changes that are left."""
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Whether all is done, nothing finished ran again, and nothing is left."""
        return not (self.repeated or self.left or self.problem)

    def sentence(self) -> str:
        """All of it in words."""
        words = f"killed at {', '.join(self.kills)} finished; {self.runs} runs of {AGENTS} agents"
        bad = [f"RUN AGAIN: {', '.join(self.repeated)}"] if self.repeated else []
        bad += [f"LEFT: {', '.join(self.left)}"] if self.left else []
        return "; ".join([words, *bad, *([self.problem] if self.problem else [])])


def play_round(project: AgentProject, chance: random.Random) -> KillRound:
    """Start the agents, kill their driver a few times, and let the last one go to the end."""
    found, store = KillRound(), project.folder / ".abreast" / "abreast.db"
    tasks = project.folder.parent / "tasks"
    tasks.write_text(project.tasks())
    before = _state(project)
    words = [*project.map_words(), "-a", str(tasks)]
    finished: set[str] = set()
    counted: dict[str, int] = {}
    for _ in range(chance.randint(1, MOST_KILLS)):
        wanted = chance.randint(len(finished), AGENTS - 1)
        project.let_finish(chance.choice([wanted, wanted, AGENTS]))
        with subprocess.Popen(
            [sys.executable, "-m", "abreast", *words],
            cwd=project.folder,
            env=project.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as driver:
            _wait_for(driver, store, wanted, sum(counted.values()))
            time.sleep(chance.uniform(0, LONGEST_WAIT))
            driver.send_signal(signal.SIGKILL)
        again = _sessions(store)
        found.repeated += [key for key in finished if again.get(key, 0) > counted.get(key, 0)]
        finished, counted = _finished(store), again
        found.kills.append(f"{len(finished)} of {len(counted)}")
        words = ["resume", "--json"]
        if len(finished) == AGENTS:
            break
    project.let_finish(AGENTS)
    ended = project.abreast(*words)
    again = _sessions(store)
    found.repeated += [key for key in finished if again.get(key, 0) > counted.get(key, 0)]
    found.runs = sum(again.values())
    found.problem = _problem(project, ended)
    found.left = [
        *_left(project),
        *(["a changed source tree"] if _state(project) != before else []),
    ]
    return found


def _problem(project: AgentProject, ended: "subprocess.CompletedProcess[str]") -> str:
    """What is wrong with the results, in words."""
    if ended.returncode:
        return f"exit code {ended.returncode}: {ended.stderr.strip()}"
    # Not what `resume` prints: a driver that is killed after its last item leaves nothing to do.
    exported = project.abreast("export", "last").stdout
    if not changes_are_right([json.loads(line) for line in exported.splitlines()]):
        return "an agent's changes are not all there"
    merged = json.loads(project.abreast("plan", "apply", "last", "--json").stdout)
    listed = [[one["file"], *one["parts"]] for one in merged["conflicts"]]
    right = listed == [[SHARED, *(f"{number:04}" for number in CONFLICT)]]
    return "" if right else f"its conflicts are {listed}"


def _wait_for(driver: "subprocess.Popen[bytes]", store: Path, finished: int, runs: int) -> None:
    """Wait until so many agents are finished, and one has begun since the last kill."""
    end = time.monotonic() + PATIENCE
    while driver.poll() is None and time.monotonic() < end:
        if (
            store.exists()
            and len(_finished(store)) >= finished
            and sum(_sessions(store).values()) > runs
        ):
            return
        time.sleep(_PAUSE)


def _finished(store: Path) -> set[str]:
    """The items whose outcome is recorded."""
    with closing(SqliteStore(str(store))) as opened:
        rows = opened.runs(limit=1)
        found = opened.outcomes(rows[0].id, limit=1_000) if rows else []
        return {one.path for one in found if one.data["state"] == "done"}


def _sessions(store: Path) -> dict[str, int]:
    """How often an agent has begun, for each item."""
    counted: dict[str, int] = {}
    with closing(SqliteStore(str(store))) as opened:
        for row in opened.runs(limit=1):
            for event in opened.events(row.id, kinds={"agent-started"}, limit=10_000):
                path = event.path.partition("/calls/")[0]
                counted[path] = counted.get(path, 0) + 1
    return counted


def _state(project: AgentProject) -> tuple[str, ...]:
    """What must not change before the work is applied."""
    ask = (("status", "--porcelain"), ("for-each-ref",), ("stash", "list"), ("worktree", "list"))
    return tuple(project.git(*words) for words in ask)


def _left(project: AgentProject) -> Iterator[str]:
    """Worktrees, and processes of agents, that are left."""
    if project.cache.exists():
        yield from (f"worktree {path.name}" for path in project.cache.glob("*/*"))
    wanted = f"ABREAST_CACHE={project.cache}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        if wanted in words and any(word.startswith(f"{MARK}=".encode()) for word in words):
            yield f"process {place.name}"


def main() -> int:
    """Print a line for each round; the exit code is 1 if one of them went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--agents", type=Path, help="where npm installed the agents")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    chance, right = random.Random(given.seed), 0
    with ExitStack() as stack:
        urls = []
        if given.agents is not None:
            urls = [stack.enter_context(start_process()).url] * 2
        for number in range(given.rounds):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if given.agents is not None:
                place = given.agents.resolve() / "node_modules" / ".bin"
                project = live_project("claude", folder, place, urls)
            else:
                name = ("claude", "codex")[number % 2]
                project = replayed_project(name, folder, RECORDED / f"ten-{name}.jsonl")
            found = play_round(project, chance)
            right += found.is_right
            print(f"round {number + 1}: {project.name}: {found.sentence()}", flush=True)
    print(f"{right} of {given.rounds} rounds: nothing finished ran again, and nothing was left")
    return 0 if right == given.rounds else 1


if __name__ == "__main__":
    sys.exit(main())

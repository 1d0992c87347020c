"""Jobs on two nodes of Ray on this machine, while workers, nodes and drivers are killed.

    python -m benchmarks.cluster [--rounds 3] [--seed N] [--items 40] [--width 4]

In every round a map and a plan run once for each kill: of an agent with its work, of a node, of the
driver, which is then resumed. What is killed, and when, is drawn from the seed, which is printed.
It ends with 1 unless nothing was lost, nothing recorded was repeated, at most `width` items were
repeated for a kill, the result is that of an undisturbed run without a cluster, and no process and
no worktree is left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from abreast.core.events import ITEM_SETTLED
from abreast.store.sqlite.store import SqliteStore
from benchmarks.ray_nodes import TwoNodes, open_nodes, wait_until, work_of_agents

KILLS = ("worker", "node", "driver")
_RAY = ("--executor", "ray")
_WORK = 'echo "$1" >> "$LOG"; sleep 0.2; echo "done $1"'
_REWRITE = 'echo "$ABREAST_SCOPE" >> "$LOG"; sleep 0.5; for f in {files}; do echo new >> "$f"; done'


class Report(NamedTuple):
    """What a kill did to a job."""

    job: str
    kill: str
    lost: int
    recorded_repeated: int
    repeated: int
    equal: bool
    left: int
    seconds: float

    def is_good(self, width: int) -> bool:
        """Whether the promises were kept."""
        bad = self.lost or self.recorded_repeated or self.left or not self.equal
        return not bad and self.repeated <= width


class Job:
    """One run of a job in a folder of its own, which logs every execution of an item."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        """`arguments` are those of abreast."""
        self.folder, self._arguments = folder, arguments
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log"
        self.log.touch()
        self._environment = {
            **os.environ,
            "LOG": str(self.log),
            "ABREAST_CACHE": str(folder / "cache"),
        }

    def start(self, given: str, *more: str) -> subprocess.Popen[str]:
        """Start it, with its items on stdin."""
        with tempfile.TemporaryFile("w+") as items:
            items.write(given)
            items.seek(0)
            return subprocess.Popen(
                [sys.executable, "-m", "abreast", *(more or self._arguments)],
                cwd=self.folder / "project",
                env=self._environment,
                stdin=items,
                stdout=subprocess.PIPE,
                text=True,
            )

    def executed(self) -> list[str]:
        """The items whose execution began, in that order."""
        return self.log.read_text().split()

    def recorded(self) -> set[str]:
        """The keys of the items that are on the disk."""
        path = self.folder / "project" / ".abreast" / "abreast.db"
        store = SqliteStore(str(path))
        try:
            (row,) = store.runs(limit=1)
            events = store.events(row.id, kinds={ITEM_SETTLED})
            return {event.path.rpartition("/")[2] for event in events}
        finally:
            store.close()


class Disturbance(NamedTuple):
    """A kill once `after` items have begun."""

    cluster: TwoNodes
    kill: str
    after: int
    draw: Random


def disturb(job: Job, given: str, what: Disturbance) -> tuple[str, list[str], set[str]]:
    """Run a job and kill something.

    Returns its stdout, the items that began after the kill, and those recorded before it.
    """
    cluster, kill, after, draw = what
    driver = job.start(given)
    wait_until(lambda: len(job.executed()) >= after or driver.poll() is not None)
    if kill == "worker":
        agents = sorted(set(work_of_agents().values()))
        with suppress(ProcessLookupError):
            os.kill(draw.choice(agents), signal.SIGKILL)
    elif kill == "node":
        cluster.second.kill()
    else:
        driver.send_signal(signal.SIGKILL)
    recorded, begun = job.recorded(), len(job.executed())
    out, _ = driver.communicate(timeout=300)
    if kill == "driver":
        wait_until(lambda: not work_of_agents())
        begun = len(job.executed())
        out, _ = job.start("", "resume", "last").communicate(timeout=300)
    elif kill == "node":
        cluster.replace_node()
    return out, job.executed()[begun:], recorded


def map_round(
    cluster: TwoNodes, kill: str, draw: Random, *, items: int, width: int, folder: Path
) -> Report:
    """A map of commands."""
    lines = "".join(f"{number}\n" for number in range(items))
    job = Job(
        folder, "map", *_RAY, "-P", str(width), "--key", "{}", "--", "sh", "-c", _WORK, "sh", "{}"
    )
    (folder / "project").mkdir()
    began = time.monotonic()
    after = draw.randrange(items // 4, 3 * items // 4)
    what = Disturbance(cluster, kill, after, draw)
    out, later, recorded = disturb(job, lines, what)
    seconds = time.monotonic() - began
    expected = [f"done {number}" for number in range(items)]
    found = _count("map", kill, job, items)
    return found._replace(
        recorded_repeated=len(recorded & set(later)),
        equal=out.splitlines() == expected,
        seconds=seconds,
    )


def plan_round(
    cluster: TwoNodes, kill: str, draw: Random, *, items: int, width: int, folder: Path
) -> Report:
    """A plan whose parts are directories, worked on by a command."""
    parts = max(4, items // 5)
    options = ("--min-files", "1", "--max-files", "1", "--width", str(width))
    job = Job(folder, "plan", "run", "--command", _REWRITE, *options, *_RAY)
    project = folder / "project"
    for number in range(parts):
        (project / f"part{number:02}").mkdir(parents=True)
        (project / f"part{number:02}" / "text.txt").write_text("old\n")
    own = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    for git in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *own, *git], cwd=project, check=True)
    began = time.monotonic()
    after = draw.randrange(1, parts // 2)
    disturb(job, "", Disturbance(cluster, kill, after, draw))
    job.start("", "plan", "apply", "last").communicate(timeout=100)
    seconds = time.monotonic() - began
    texts = [path.read_text() for path in sorted(project.glob("part*/text.txt"))]
    found = _count("plan", kill, job, parts)
    return found._replace(equal=texts == ["old\nnew\n"] * parts, seconds=seconds)


def _count(name: str, kill: str, job: Job, items: int) -> Report:
    """What was lost, repeated and left behind."""
    counts = Counter(job.executed())
    with suppress(TimeoutError):  # then what is left is counted
        wait_until(lambda: not work_of_agents(), 30)
    left = len(work_of_agents()) + len(list((job.folder / "cache").rglob("scratch")))
    lost, repeated = items - len(counts), sum(counts.values()) - len(counts)
    return Report(name, kill, lost, 0, repeated, equal=False, left=left, seconds=0.0)


def play(
    cluster: TwoNodes, seed: int, *, rounds: int, items: int, width: int, jobs: str = "map plan"
) -> list[Report]:
    """Play rounds, and print a line for each kill."""
    draw = Random(seed)
    found = []
    for number in range(rounds):
        for kill in KILLS:
            for job in jobs.split():
                folder = Path(tempfile.mkdtemp(prefix="abreast-cluster-"))
                turn = map_round if job == "map" else plan_round
                try:
                    report = turn(cluster, kill, draw, items=items, width=width, folder=folder)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                found.append(report)
                sys.stdout.write(
                    f"round {number + 1}, {report.job}, {kill} killed: {report.lost} lost, "
                    f"{report.recorded_repeated} recorded repeated, {report.repeated} in flight "
                    f"repeated, {'equal' if report.equal else 'NOT EQUAL'}, {report.left} left "
                    f"behind, {report.seconds:.1f} s\n"
                )
                sys.stdout.flush()
    return found


def main() -> int:
    """Play, and say whether all was well."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--width", type=int, default=4)
    given = parser.parse_args()
    seed = Random().randrange(1 << 32) if given.seed is None else given.seed
    sys.stdout.write(f"seed {seed}\n")
    with open_nodes(cpus=given.width) as cluster:
        found = play(cluster, seed, rounds=given.rounds, items=given.items, width=given.width)
    good = all(report.is_good(given.width) for report in found)
    sys.stdout.write(f"{len(found)} kills: {'all promises kept' if good else 'NOT KEPT'}\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Rounds of kills, and what each did to its job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from benchmarks.cluster.jobs import HIDDEN, PREPARE, Job, Prepared
from benchmarks.ray_nodes import TwoNodes, wait_until

KILLS = ("worker", "node", "driver", "database")
_WAIT, _LOOK_INTERVAL = 300.0, 0.2  # seconds
_HEAD = f"{'round':>5}  {'job':9}{'killed':10}{'lost':>5}{'recorded repeated':>19}"
_HEAD += f"{'in flight repeated':>20}  {'result':7}{'left':>5}{'seconds':>9}\n"


class DatabaseServer(Protocol):
    """A PostgreSQL of `scripts/postgres.py`."""

    @property
    def url(self) -> str:
        """The address of its database."""

    def kill(self) -> None:
        """Kill all its processes."""

    def start(self) -> None:
        """Start it again."""


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
    late: bool = False
    """Whether the job had ended before the kill, which then showed nothing."""

    def is_good(self, width: int) -> bool:
        """Whether the promises were kept."""
        bad = self.late or self.lost or self.recorded_repeated or self.left or not self.equal
        return not bad and self.repeated <= width


class Arena(NamedTuple):
    """Where jobs run."""

    cluster: TwoNodes
    database: DatabaseServer
    items: int
    width: int
    draw: Random

    def play(self, name: str, kill: str, expected: object) -> Report:
        """Run a job, and kill something in the middle of it."""
        log_folder = Path(tempfile.mkdtemp(prefix="abreast-cluster-"))
        home = self.cluster.hidden if name in HIDDEN else log_folder
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=home))
        schema = f"r{os.getpid()}_{self.draw.getrandbits(40):x}"
        try:
            job = Job(folder, log_folder / "log", f"{self.database.url}?schema={schema}")
            ready = PREPARE[name](job, self.items, self.width, "ray")
            began = time.monotonic()
            out, repeated, late = self._disturb(job, ready, kill)
            result = _try(ready, job, out)
            seconds = time.monotonic() - began
            counts = Counter(job.executed(ready.items))
            return Report(
                name,
                kill,
                len(ready.items) - len(counts),
                repeated,
                sum(counts.values()) - len(counts),
                equal=result == expected,
                left=self._left(job),
                seconds=seconds,
                late=late,
            )
        finally:
            for place in (folder, log_folder):
                shutil.rmtree(place, ignore_errors=True)

    def _disturb(self, job: Job, ready: Prepared, kill: str) -> tuple[str, int, bool]:
        """Kill something once some items have begun.

        Returns the job's stdout, how many recorded items were executed after the kill, and whether
        the job had ended before it.
        """
        after = self.draw.randrange(1, max(2, len(ready.items) // 2))
        driver = job.start(*ready.arguments, given=ready.given)
        _look_until(lambda: len(job.executed(ready.items)) >= after or driver.poll() is not None)
        recorded = job.recorded(ready.items)
        begun = len(job.executed(ready.items))
        late = driver.poll() is not None
        if kill == "worker":
            late = not self._kill_agent(driver)
        elif kill == "node":
            self.cluster.second.kill()
        elif kill == "database":
            self.database.kill()
            self.database.start()
        else:
            driver.send_signal(signal.SIGKILL)
        out, _ = driver.communicate(timeout=600)
        if kill == "driver":
            _look_until(lambda: not self.cluster.work())
            flags = ("--json",) if "--json" in ready.arguments else ()
            out = job.run("resume", "last", *flags)
        elif kill == "node":
            self.cluster.replace_node()
        later = job.executed(ready.items)[begun:]
        return out, len(recorded & set(later)), late

    def _kill_agent(self, driver: subprocess.Popen[str]) -> bool:
        """Kill one that works; False if the driver ended first."""
        killed = False

        def try_kill() -> bool:
            nonlocal killed
            if agents := sorted(set(self.cluster.work().values())):
                with suppress(ProcessLookupError):
                    os.kill(self.draw.choice(agents), signal.SIGKILL)
                    killed = True
            return killed or driver.poll() is not None

        _look_until(try_kill)
        return killed

    def _left(self, job: Job) -> int:
        """Processes and worktrees that are still there."""
        with suppress(TimeoutError):  # then what is left is counted
            _look_until(lambda: not self.cluster.work())
        copies = [one for cache in self.cluster.caches for one in cache.glob("nodes/work/*")]
        return len(self.cluster.work()) + len(copies) + len([*job.folder.rglob("cache/**/scratch")])


def _look_until(holds: Callable[[], bool]) -> None:
    """Wait for it; each look reads the store, or the environment of every process."""
    wait_until(holds, _WAIT, _LOOK_INTERVAL)


def _try(ready: Prepared, job: Job, out: str) -> object:
    try:
        return ready.result(job, out)
    except (ValueError, KeyError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def undisturbed(name: str, items: int, width: int) -> object:
    """The result of a job that runs on this machine, with a file as its store."""
    with tempfile.TemporaryDirectory(prefix="abreast-cluster-") as place:
        folder = Path(place) / "job"
        job = Job(folder, Path(place) / "log", str(folder / "runs.db"))
        ready = PREPARE[name](job, items, width, "local")
        return ready.result(job, job.run(*ready.arguments, given=ready.given))


def play(
    arena: Arena,
    rounds: int,
    jobs: Sequence[str] = tuple(PREPARE),
    kills: Sequence[str] = KILLS,
) -> list[Report]:
    """Play rounds, and print a line for each kill.

    In a round every job is disturbed once; after four rounds each has met every kill. A kill that
    comes after the end of its job is tried once more.
    """
    expected = {name: undisturbed(name, arena.items, arena.width) for name in jobs}
    sys.stdout.write(_HEAD)
    found = []
    for number in range(rounds):
        for place, name in enumerate(jobs):
            kill = kills[(number + place) % len(kills)]
            report = arena.play(name, kill, expected[name])
            if report.late and report._replace(late=False).is_good(arena.width):
                report = arena.play(name, kill, expected[name])
            found.append(report)
            sys.stdout.write(
                f"{number + 1:>5}  {report.job:9}{report.kill:10}{report.lost:>5}"
                f"{report.recorded_repeated:>19}{report.repeated:>20}  "
                f"{'equal' if report.equal else 'OTHER':7}{report.left:>5}{report.seconds:>9.1f}"
                f"{'' if report.is_good(arena.width) else '  NOT KEPT'}\n"
            )
            sys.stdout.flush()
    return found

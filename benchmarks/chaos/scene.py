"""A round before and while it is played: its place, its servers, and what is drawn for it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from abreast.testing.storm import StormProcess
from benchmarks.chaos.memory_group import MemoryGroup
from benchmarks.chaos.place import Place, processes_of

WHILE_IT_WORKS = 0.85  # the share of faults that do not come while Python starts
ONE_STEP = 0.05  # seconds, about what a command or a call takes


class DatabaseServer(Protocol):
    """A PostgreSQL of `scripts/postgres.py`."""

    @property
    def url(self) -> str:
        """The address of its database."""

    def kill(self) -> None:
        """Kill all its processes."""

    def start(self) -> None:
        """Start it again."""


@dataclass(slots=True)
class Scene:
    """What a fault may reach."""

    place: Place
    draw: Random
    storm: StormProcess
    since: int
    """How many requests the model's server had before."""
    seconds: float = 0.0
    """How long the job works undisturbed."""
    steps: int = 0
    """How many commands and calls it makes undisturbed."""
    aim: float = 1.0
    """The part of its work after which no fault comes: less, if one came too late before."""
    at: int | None = None
    """The number of the write or fsync at which a fault comes; drawn if None."""
    recovered: bool = False
    """Whether the store was damaged and what was whole of it was saved."""
    hit: bool = False
    """Whether the fault met the job while it could still disturb it."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """How many writes and fsyncs its store takes undisturbed."""
    shim: Path | None = None
    database: DatabaseServer | None = None
    reader: int = -1
    """The end of the driver's stdout that is read, if it is a pipe."""
    repeatable: int | None = None
    errors: list[str] = field(default_factory=list)
    """What commands wrote to stderr."""
    group: MemoryGroup | None = None
    exported: str | None = None
    """What a damaged store gave as its results, if it gave any without an error."""

    @property
    def hit_file(self) -> Path:
        """Made by the shim when its fault happens."""
        return self.place.log.with_suffix(".hit")

    def sleep(self, driver: subprocess.Popen[bytes], seconds: float | None = None) -> None:
        """Wait so long; or until a random moment, mostly while it works; or for its end.

        That moment is a number of commands and calls, if the job makes any, as the time that they
        take depends on the machine.
        """
        aims = seconds is None
        if seconds is None:
            seconds = self.draw.uniform(0.0, self.aim * self.seconds)
            if self.draw.random() < WHILE_IT_WORKS:
                self.wait_for_work(driver)
                if self.steps:
                    seconds = self.draw.uniform(0.0, ONE_STEP)
                    self.wait_for_steps(driver, self.draw.randint(1, self._last_step()))
        with suppress(subprocess.TimeoutExpired):
            driver.wait(seconds)
        if aims:
            self.hit = driver.poll() is None

    def _last_step(self) -> int:
        return max(1, int(self.aim * self.steps))

    def wait_for_steps(self, driver: subprocess.Popen[bytes], number: int) -> None:
        """Wait until so many commands and calls have begun, or until the driver has ended."""
        while driver.poll() is None and self.made() < number:
            time.sleep(0.01)

    def made(self) -> int:
        """How many commands and calls have begun."""
        return len(self.place.executed()) + len(self.storm.log(self.since))

    def wait_for_work(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until something is executed or asked, or until the driver has ended."""
        while driver.poll() is None:
            if self.place.executed() or len(self.storm.log(self.since)):
                return
            if len(processes_of(self.place.folder)) > 1:  # a sandbox writes no log
                return
            time.sleep(0.01)

    def children(self, driver: subprocess.Popen[bytes]) -> list[int]:
        """Processes of the job besides the driver; waits for the first if there is none."""
        while driver.poll() is None:
            if found := [pid for pid in processes_of(self.place.folder) if pid != driver.pid]:
                return sorted(found)
            time.sleep(0.01)
        return []

    def is_silent(self, expected: Mapping[str, object]) -> bool:
        """Whether a damaged store gave fewer results than there were, and said nothing."""
        if self.exported is None:
            return False
        paths = {json.loads(line)["path"] for line in self.exported.splitlines()}
        return any("/" in path for path in expected.keys() - paths)

    def use_store(self, path: Path) -> None:
        """Go on with another store."""
        self.place.store = self.place.environment["ABREAST_STORE"] = str(path)

    def store_files(self) -> Iterator[Path]:
        """The file of the store and its write-ahead log."""
        for end in ("", "-wal"):
            path = Path(f"{self.place.store}{end}")
            if path.exists():
                yield path


def status(pid: int, name: str) -> int:
    """A figure of /proc/PID/status, such as VmSize in KiB; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


def parent_name(pid: int) -> str:
    """The name of the program that started a process; empty if one of them has ended."""
    with suppress(OSError):
        return Path(f"/proc/{status(pid, 'PPid')}/comm").read_text().strip()
    return ""


def open_files(pid: int) -> int:
    """How many descriptors a process has; 0 if it has ended."""
    try:
        return len([*Path(f"/proc/{pid}/fd").iterdir()])
    except OSError:
        return 0

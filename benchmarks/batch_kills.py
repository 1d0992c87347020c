"""Kills a map in batches with SIGKILL at random times, resumes it, and reads the provider's log.

`python -m benchmarks.batch_kills [--items 5000] [--kills 30] [--seed N]`
"""

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from abreast.core.events import BATCH_ENDED, BATCH_GATHERED, BATCH_SUBMITTED
from abreast.store.sqlite.store import SqliteStore
from abreast.testing.storm import StormProcess, start_process

PATIENCE = 600.0  # seconds until a run that should end by itself is taken to hang
LIVES = (0.8, 6.0)  # times the time that a command takes to start: when a driver is killed
SEED = 1  # of the runs, so that both send the same requests
FAULTS = {"lost": 0.1, "500-created": 0.1, "expired": 0.05, "partial": 0.05, "cut": 0.1}
PHASES = {
    BATCH_GATHERED: "in a submission",
    BATCH_SUBMITTED: "while a batch is worked on",
    BATCH_ENDED: "after a download",
}


@dataclass(slots=True)
class Killed:
    """What a map in batches came to."""

    items: int
    kills: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    same: bool = False
    billed: int = 0
    twice: int = 0
    batches: int = 0
    usd: float = 0.0
    direct_usd: float = 0.0
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether each item is paid for once, at half the price, with the same results."""
        half = abs(self.usd - self.direct_usd / 2) <= 1e-9 * self.items
        return self.same and self.billed == self.items and not self.twice and half


class Work:
    """A map over the same lines, directly or in batches."""

    def __init__(self, folder: Path, storm: StormProcess, items: int, *, size: int) -> None:
        self.folder = folder
        self.items = items
        lane = f"""[lanes.storm]
kind = "openai"
base_url = "{storm.url}/v1"
price = {{input = 1.0, output = 2.0}}
batch = {{size = {size}, age = 0.3, poll = 0.1, longest_poll = 0.5, settle = 1.0}}
"""
        (folder / "abreast.toml").write_text(lane)
        lines = (f"line {number}\n" for number in range(items))
        (folder / "lines").write_text("".join(lines))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start abreast; its output goes to a file, its errors to another."""
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            command = [sys.executable, "-m", "abreast", *arguments]
            return subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=err)

    def start_map(self, store: str, *options: str) -> subprocess.Popen[bytes]:
        """Start the map."""
        asked = ("--prompt", "Say {}", "-m", "storm/m", "--max-tokens", "40")
        more = ("--seed", str(SEED), "--input", "lines", "--json", "--store", store)
        return self.start("map", *asked, *more, *options)

    def output(self) -> list[tuple[str, object]]:
        """The key and the value of each item, as printed."""
        lines = map(json.loads, (self.folder / "out").read_text().splitlines())
        return [(line["key"], line.get("value")) for line in lines]

    def usd(self, store: str) -> float:
        """What the calls that were answered cost, by the journal."""
        with closing(sqlite3.connect(self.folder / store)) as database:
            rows = database.execute("select data from events where kind = 'call-settled'")
            facts = [json.loads(data) for (data,) in rows]
        return sum(float(one["usd"]) for one in facts if one["state"] == "done")

    def has_run(self, store: str) -> bool:
        """Whether the run is there to be resumed, and its input with it."""
        if not (self.folder / store).exists():
            return False
        with closing(sqlite3.connect(self.folder / store)) as database, suppress(sqlite3.Error):
            return bool(database.execute("select count(*) from runs").fetchone()[0])
        return False

    def phase(self, store: str) -> str:
        """Where its batches are: what the journal says of the newest one."""
        with tempfile.TemporaryDirectory() as folder:  # a copy: opening it takes in the notes
            for file in self.folder.glob(f"{store}*"):
                shutil.copytree(file, Path(folder, file.name)) if file.is_dir() else shutil.copy(
                    file, folder
                )
            with closing(SqliteStore(Path(folder, store))) as opened:
                rows = opened.runs(limit=1)
                kinds = [
                    event.kind
                    for row in rows
                    for event in opened.events(row.id, kinds=PHASES, limit=100_000)
                ]
        return PHASES[kinds[-1]] if kinds else "before the first batch"


def kill_and_resume(
    folder: Path, *, items: int, kills: int, seed: int, size: int, in_submissions: bool = False
) -> Killed:
    """Run the map directly; then in batches, with kills; compare them.

    With `in_submissions` each kill is between the acceptance of a batch and the answer; else at
    random times, and the provider has faults of its own.
    """
    chance, found, began = random.Random(seed), Killed(items), time.monotonic()
    faults = {} if in_submissions else FAULTS
    with start_process(seed=seed, batch_seconds=1.5, batch_faults=faults, markers=False) as storm:
        work = Work(folder, storm, items, size=size)
        assert work.start_map("direct.db", "--width", "32").wait(PATIENCE) == 0
        direct = work.output()
        storm.change(latency=1.0 if in_submissions else 0.2)

        started = time.monotonic()
        work.start("runs", "--store", "direct.db").wait(PATIENCE)
        start_up = time.monotonic() - started  # on this machine, now

        def life() -> float | None:
            return None if in_submissions else start_up * chance.uniform(*LIVES)

        def accepted() -> bool:
            return len({row["batch"] for row in storm.batches()}) > found.kills

        driver = work.start_map("batched.db", "--batch")
        while not _has_ended(driver, None if found.kills == kills else life, accepted):
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
            found.kills += 1
            has_run = work.has_run("batched.db")
            found.phases[work.phase("batched.db") if has_run else "before the run"] += 1
            driver = (
                work.start("resume", "--json", "--store", "batched.db")
                if has_run
                else work.start_map("batched.db", "--batch")
            )
        assert driver.returncode == 0, (folder / "err").read_text()
        paid = Counter(row["key"] for row in storm.batches() if row["billed"])
        found.same = work.output() == direct
        found.billed, found.twice = len(paid), sum(count > 1 for count in paid.values())
        found.batches = len({row["batch"] for row in storm.batches()})
    found.usd, found.direct_usd = work.usd("batched.db"), work.usd("direct.db")
    found.seconds = time.monotonic() - began
    return found


def _has_ended(
    driver: subprocess.Popen[bytes],
    life: Callable[[], float | None] | None,
    accepted: Callable[[], bool],
) -> bool:
    """Wait for the end of a driver, or for the moment to kill it.

    That is after its `life`, or when a batch was `accepted` if it has none; never without `life`.
    """
    if life is None:
        driver.wait(PATIENCE)
    elif (seconds := life()) is not None:
        with suppress(subprocess.TimeoutExpired):
            driver.wait(seconds)
    else:
        while driver.poll() is None and not accepted():
            time.sleep(0.02)
    return driver.poll() is not None


def main() -> int:
    """Print what came of it; the exit code is 1 if something is lost or paid for twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        found = kill_and_resume(
            Path(folder), items=given.items, kills=given.kills, seed=given.seed, size=given.size
        )
    phases = ", ".join(f"{count} {phase}" for phase, count in found.phases.most_common())
    print(f"{found.items:,} items in {found.batches} batches, {found.kills} kills: {phases}")
    print(f"paid for: {found.billed:,} items, {found.twice} of them twice")
    print(f"results as of the direct run: {'the same bytes' if found.same else 'DIFFERENT'}")
    print(f"cost: {found.usd:.6f} usd, directly {found.direct_usd:.6f} usd")
    print(f"{found.seconds:.0f} s")
    return 0 if found.is_right else 1


if __name__ == "__main__":
    sys.exit(main())

"""Law 5: a resume after a crash gives the same result as no crash.

Nothing recorded is lost or run again, and at most `width` items are repeated per kill.
"""

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from abreast.store.check import check_store
from abreast.store.sqlite.store import SqliteStore
from tests.warm import Warm

JOB = Path(__file__).with_name("job.py")
WIDTH = 8
PATIENCE = 280  # seconds until a job that should end by itself is taken to hang

SHORT = 200  # items; enough for a dozen commits


class Job:
    """The killed job: its store, its counters, and children that run it."""

    def __init__(self, folder: Path, items: int, warm: Warm) -> None:
        self.store = folder / "runs.db"
        self.counts = folder / "counts"
        self.counts.mkdir()
        self.items = items
        self._warm = warm
        self._arguments = (str(self.store), str(self.counts), str(items), str(WIDTH))

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(JOB), *self._arguments], stdout=subprocess.PIPE
        )

    def run(self, *extra: str) -> tuple[int, str]:
        """Run it to its end, or until it is killed: its code, and what it printed."""
        arguments = (*self._arguments, *extra)
        code, out, _ = self._warm.run(
            str(JOB), arguments, cwd=self.counts, environment={**os.environ}, patience=PATIENCE
        )
        return code, out.decode()

    def finish(self) -> str:
        """Run it to its end; the last line it printed."""
        code, said = self.run()
        assert code == 0
        return said.split("\n")[-2]

    def executed(self) -> dict[int, int]:
        return {int(path.name): path.stat().st_size for path in self.counts.iterdir()}

    def recorded(self) -> set[int]:
        """Items whose outcome is committed, read without the code under test."""
        with closing(sqlite3.connect(self.store)) as db:
            rows = db.execute("SELECT data FROM events WHERE kind = 'item-settled'").fetchall()
        return _final(json.loads(data) for (data,) in rows)


def _final(facts: Iterable[dict[str, Any]]) -> set[int]:
    return {fact["index"] for fact in facts if fact["state"] != "cancelled"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, warm):
    """What the job prints when it is not killed."""
    return {
        items: Job(tmp_path_factory.mktemp(f"calm{items}"), items, warm).finish()
        for items in (SHORT, 500)
    }


def check(job: Job, kills: int, undisturbed: str) -> None:
    assert job.finish() == undisturbed
    executed = job.executed()
    assert sorted(executed) == list(range(job.items))
    assert sum(executed.values()) - job.items <= kills * WIDTH
    with closing(SqliteStore(job.store)) as store:
        found = check_store(store)
    assert found.is_whole
    assert [run.verdict for run in found.runs] == ["ok"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commit", range(1, 13))
def test_killed_at_a_boundary_of_the_journal_and_resumed_it_returns_the_same(
    tmp_path, commit, when, undisturbed, warm
):
    job = Job(tmp_path, SHORT, warm)
    assert job.run("--crash", str(commit), when)[0] == -signal.SIGKILL
    recorded, executed = job.recorded(), job.executed()
    check(job, 1, undisturbed[SHORT])
    again = job.executed()
    assert all(again[item] == executed[item] for item in recorded), "a recorded item ran again"


def kill_at_random(job: Job, rng: random.Random) -> bool:
    """Start the job and kill it at some moment after its first outcome.

    False if it ended before that.
    """
    child = job.start()
    out = child.stdout
    assert out is not None
    with out:
        first = out.readline()
        if first == b"started\n":
            select.select([out], [], [], rng.random() * 0.05)  # a moment, or its end
        child.kill()
        child.wait(60)
    return child.returncode == -signal.SIGKILL


def storm(job: Job, kills: int, seed: int) -> int:
    rng = random.Random(seed)
    done = 0
    for _ in range(kills):
        before, counts = (job.recorded(), job.executed()) if done else (set(), {})
        done += kill_at_random(job, rng)
        after = job.executed()
        assert all(after[item] == counts[item] for item in before), "a recorded item ran again"
        if job.recorded() == set(range(job.items)):
            break
    return done


def test_killed_at_random_times_it_loses_nothing_and_repeats_no_recorded_item(
    tmp_path, undisturbed, warm
):
    job = Job(tmp_path, 500, warm)
    check(job, storm(job, 6, seed=1), undisturbed[500])


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_hundred_kills_lose_nothing(tmp_path_factory, undisturbed, warm):
    kills = round_ = 0
    while kills < 100:
        job = Job(tmp_path_factory.mktemp(f"round{round_}"), 500, warm)
        killed = storm(job, 100 - kills, seed=round_)
        check(job, killed, undisturbed[500])
        kills, round_ = kills + killed, round_ + 1
    print(  # noqa: T201 - the figures are the point
        f"\n{kills} kills over {round_} runs of 500 items: 0 lost, 0 recorded items run again"
    )


def test_a_second_driver_is_refused_and_told_who_the_first_is(tmp_path):
    held = """
import asyncio, sys, abreast
async def main():
    async with abreast.open_run("held", store=sys.argv[1]) as run:
        print("driving", flush=True)
        sys.stdin.readline()
asyncio.run(main())
"""
    store = tmp_path / "runs.db"
    first = subprocess.Popen(
        [sys.executable, "-c", held, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout is not None
    assert first.stdout.readline() == b"driving\n"
    second = subprocess.run(
        [sys.executable, "-c", held, str(store)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert "RunBusy" in second.stderr
    assert f"process {first.pid} on " in second.stderr
    first.kill()
    first.communicate(timeout=60)
    third = subprocess.run(
        [sys.executable, "-c", held, str(store)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert third.stdout == "driving\n"
    assert third.returncode == 0
    assert list(Path(f"{store}-locks").iterdir()) == []

"""Print what several drivers on one shared lane reach.

`python -m benchmarks.shared_lanes [--drivers 4] [--calls 150] [--store runs.db] [--alone]`.

A storm server takes 12 calls at once and 600 a minute. Drivers in processes of their own each ask
it a number of questions; they know of each other only through the store. The counts are those of
the server's own log. With --alone the lanes are not shared, for comparison: each driver has the
whole limits. Then a driver is killed, and the time is measured until another has its permits; and
a budget is spent by all drivers together.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from abreast.assembly.names import find_store
from abreast.limits.shared.ledger import read_ledger
from abreast.testing.storm import StormProcess, start_process

SLOTS, RPM, LATENCY = 12, 600, 1.5  # seconds
PATIENCE = 300.0  # seconds
_LANE = """
[lanes.team]
base_url = "{url}/v1"
width = {slots}
{more}
price = {{input = 1.0, output = 1.0}}
"""


class Reached(NamedTuple):
    """What the server saw."""

    calls: int
    rejected: int
    peak: int
    seconds: float
    bound: float
    failed: int

    def __str__(self) -> str:
        """One line."""
        share = 100 * self.rejected / max(1, self.calls + self.rejected)
        return (
            f"{self.calls} answered, {self.rejected} rejected ({share:.1f}%), peak {self.peak}, "
            f"{self.seconds:.1f} s ({self.seconds / self.bound:.2f} x the bound), "
            f"{self.failed} failed"
        )


def main() -> int:
    """Print a line for each trial; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drivers", type=int, default=4)
    parser.add_argument("--calls", type=int, default=150)
    parser.add_argument("--store", default="")
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or str(Path(folder, "runs.db"))
        shared = _together(Path(folder), store, given.drivers, given.calls, shared=True)
        print(f"shared by {given.drivers} drivers: {shared}")
        if given.alone:
            alone = _together(Path(folder), store, given.drivers, given.calls, shared=False)
            print(f"not shared:           {alone}")
        returned = _after_kill(Path(folder), store)
        print(f"a driver killed: its {SLOTS} permits were in use again after {returned:.1f} s")
        spent = _one_budget(Path(folder), store, given.drivers)
        print(f"one budget of 0.010 usd for {given.drivers} drivers: {spent:.6f} usd spent")
    good = (
        shared.peak == SLOTS
        and shared.rejected <= shared.calls / 100
        and not shared.failed
        and returned < 10
        and 0 < spent <= 0.01
    )
    print("all bounds kept" if good else "MISSED")
    return 0 if good else 1


def _together(folder: Path, store: str, drivers: int, calls: int, *, shared: bool) -> Reached:
    with start_process(rpm=RPM, concurrency=SLOTS, latency=LATENCY, noise=0.2) as storm:
        more = f"rpm = {RPM}\nshared = {str(shared).lower()}"
        _configure(folder, storm, more)
        began = time.monotonic()
        children = [_driver(folder, store, calls) for _ in range(drivers)]
        failed = sum(child.wait() != 0 for child in children)
        seconds = time.monotonic() - began
        log = storm.log()
    answered = [entry for entry in log if entry.outcome == "ok"]
    rejected = sum(entry.verdict == "rejected" for entry in log)
    begun = min(entry.t_arrive for entry in log)
    ended = max(entry.t_end or 0.0 for entry in log)
    bound = max((len(answered) - RPM / 60) * 60 / RPM, LATENCY * len(answered) / SLOTS)
    return Reached(
        len(answered),
        rejected,
        max(entry.in_flight for entry in log if entry.verdict == "admitted") + 1,
        min(seconds, ended - begun),
        bound,
        failed,
    )


def _after_kill(folder: Path, store: str) -> float:
    """Seconds from a SIGKILL of the driver that has all permits to the first call of another."""
    with start_process(latency=2 * PATIENCE) as storm:
        _configure(folder, storm, "shared = true")
        one = _driver(folder, store, SLOTS)
        _until(lambda: len(storm.log()) == SLOTS)
        other = _driver(folder, store, 1)
        try:
            _until(lambda: _holders(store) == 2)
            os.kill(one.pid, signal.SIGKILL)
            one.wait()
            began = time.monotonic()
            _until(lambda: len(storm.log()) > SLOTS)
            return time.monotonic() - began
        finally:
            other.kill()
            other.wait()


def _holders(store: str) -> int:
    """How many drivers hold or want permits of the lane."""
    with closing(find_store(store)) as opened:
        return max(
            (len(read_ledger(text).holders) for text in opened.ledgers().values()), default=0
        )


def _one_budget(folder: Path, store: str, drivers: int) -> float:
    """US dollars that the server would bill to drivers with one budget of a cent."""
    with start_process(latency=0.02) as storm:
        _configure(folder, storm, 'shared = true\nbudget = "0.01usd"')
        children = [_driver(folder, store, 200) for _ in range(drivers)]
        for child in children:
            child.wait()
        billed = storm.billed().values()
        return sum(each.input + each.output for each in billed) / 1e6


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it did not happen within {PATIENCE:g} s")
        time.sleep(0.05)


def _configure(folder: Path, storm: StormProcess, more: str) -> None:
    text = _LANE.format(url=storm.url, slots=SLOTS, more=more)
    (folder / "abreast.toml").write_text(text)


def _driver(folder: Path, store: str, calls: int) -> subprocess.Popen[bytes]:
    inputs = folder / f"questions-{calls}.txt"
    inputs.write_text("".join(f"question {number}\n" for number in range(calls)))
    command = [
        *(sys.executable, "-m", "abreast", "map", "--store", store, "--quiet"),
        *("--prompt", "{}", "--model", "team/any", "--max-tokens", "64", "--width", "64"),
    ]
    with inputs.open("rb") as lines:
        return subprocess.Popen(
            command, stdin=lines, cwd=folder, stdout=subprocess.DEVNULL, stderr=None
        )


if __name__ == "__main__":
    sys.exit(main())

"""How often measuring is wrong.

The same code against itself, and a small gain that is really there.

    python -m benchmarks.measuring aa --runs 200
    python -m benchmarks.measuring planted --runs 100
    python -m benchmarks.measuring show

`aa` counts how many identical candidates are reported as faster; `planted` measures a function of
1 ms (on this machine) against a candidate that is 10% faster; `show` prints the results so far.

Every run is what `abreast optimize` does to measure one candidate that behaves: alone on the
machine, with fresh processes, by its default plan. A run is a line in `build/measuring-KIND.jsonl`,
written when it ends: stopped, a series goes on where it was, and `--fresh` begins a new one. It
ends with 1 if a series that is complete is not good enough: of 200, at most 1 may be faster than
itself; of 100, at least 95 gains must be found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from abreast.jobs.candidates.behaviour.traced_run import Tests
from abreast.jobs.candidates.evaluator import Bounds, Evaluator
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.pool import open_worktrees

BUILD = Path(__file__).resolve().parent.parent / "build"
CALIBRATION_ROUNDS = 3_000
CALIBRATION_CALLS = 50
SOURCE = '''\
"""Work of about a millisecond."""


def work(numbers):
    """A sum, by way of many that nobody asked for."""
    total = 0
    for _ in range({rounds}):
        total = sum(number * number for number in numbers)
    return total
'''
TEST = """\
from work import work


def test_work():
    assert work([3, 1, 4, 1]) == 27
"""

# Plugins that happen to be installed here take longer to load than all else of a start.
QUICK = "[pytest]\naddopts = -p no:hypothesispytest -p no:asyncio -p no:anyio -p no:timeout\n"


@dataclass(frozen=True, slots=True)
class Series:
    """A kind of run: the candidate's speed, and how many runs may say "faster"."""

    speed: float
    runs: int
    allowed: tuple[float, float]
    """Of all runs, the least and the greatest share that may be faster."""

    def good(self, faster: int, runs: int) -> bool:
        """Whether so many of so many are good enough."""
        least, most = self.allowed
        return least * runs <= faster <= most * runs


SERIES = {
    "aa": Series(1.0, 200, (0.0, 0.005)),
    "planted": Series(1.1, 100, (0.95, 1.0)),
}


def rounds_of_a_millisecond() -> int:
    """How many rounds of the function take a millisecond here, by the quickest of some calls."""
    names: dict[str, Any] = {}
    exec(SOURCE.format(rounds=CALIBRATION_ROUNDS), names)
    took = []
    for _ in range(CALIBRATION_CALLS):
        began = time.perf_counter()
        names["work"]([3, 1, 4, 1])
        took.append(time.perf_counter() - began)
    return round(CALIBRATION_ROUNDS * 0.001 / min(took))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The runs that are known; a line that was cut off is none."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def summary(kind: str, rows: list[dict[str, Any]]) -> str:
    """What they say, in a few lines."""
    if not rows:
        return f"{kind}: no run yet"
    counts = Counter(row["verdict"] for row in rows)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    ratios = sorted(row["ratio"] for row in rows if row["ratio"])
    floors = [row["noise_floor"] for row in rows if row["noise_floor"] is not None]
    middle = {word: median(row[word] for row in rows) for word in ("took", "blocks", "load")}
    lines = [
        f"{kind}: {len(rows)} runs: {words}",
        f"  {middle['took']:.1f} s a run, {sum(row['took'] for row in rows) / 60:.0f} min in all",
        f"  {middle['blocks']:.0f} blocks a run, load {middle['load']:.1f}",
    ]
    if ratios:
        original = median(row["seconds"] for row in rows if row["seconds"])
        lines.append(
            f"  the original takes {original * 1e3:.2f} ms; ratio "
            f"{median(ratios):.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}]; "
            f"noise floor {median(floors):.1%}"
        )
    return "\n".join(lines)


@contextmanager
def project(source: str) -> Iterator[Path]:
    """A repository with the function and its test."""
    with tempfile.TemporaryDirectory(prefix="abreast-measuring-") as place:
        top = Path(place) / "project"
        top.mkdir()
        os.environ["ABREAST_CACHE"] = str(Path(place) / "cache")  # worktrees go with the rest
        (top / "work.py").write_text(source, "utf-8")
        (top / "test_work.py").write_text(TEST, "utf-8")
        (top / "pytest.ini").write_text(QUICK, "utf-8")
        who = ["-c", "user.name=measuring", "-c", "user.email=measuring@example.com"]
        for words in (["init", "-q", "."], ["add", "--all"], [*who, "commit", "-q", "-m", "work"]):
            subprocess.run(["git", *words], cwd=top, check=True, timeout=60)
        yield top


async def run_series(kind: str, runs: int, path: Path) -> None:
    """Measure until there are so many runs, each by a seed of its own."""
    done = len(rows_of(path))
    rounds = rounds_of_a_millisecond()
    source = SOURCE.format(rounds=rounds)
    candidate = SOURCE.format(rounds=round(rounds / SERIES[kind].speed))
    with project(source) as top:
        target = Target("work.py", "work")
        tests = Tests(("test_work.py",), sys.executable)
        bench = Evaluator(target, source, tests, Bounds())
        async with open_worktrees(top, 2) as trees:
            beside, original = trees.slots
            async with bench.open(original):
                bench.ready(await bench.begin(original), original)
                for number in range(done, runs):
                    await original.reset()
                    await beside.reset()
                    beside.write_candidate(target.file, candidate)
                    began = time.perf_counter()
                    timed = await bench.time(original, beside, candidate, number)
                    row = {
                        "run": number,
                        "verdict": timed.verdict,
                        "ratio": timed.ratio,
                        "low": timed.low,
                        "high": timed.high,
                        "noise_floor": timed.noise_floor,
                        "blocks": timed.blocks,
                        "seconds": timed.seconds,
                        "took": time.perf_counter() - began,
                        "load": os.getloadavg()[0],
                        "reason": timed.reason,
                    }
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    counts = Counter(one["verdict"] for one in rows_of(path))
                    so_far = ", ".join(
                        f"{count} {verdict}" for verdict, count in counts.most_common()
                    )
                    print(
                        f"{number + 1}/{runs} {row['took']:.1f} s: {timed.reason}; so far {so_far}",
                        flush=True,
                    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=[*SERIES, "show"])
    parser.add_argument(
        "--runs", type=int, help="how many there are to be in all: 200 of aa, 100 of planted"
    )
    parser.add_argument("--fresh", action="store_true", help="forget the runs that there are")
    parser.add_argument("--build", type=Path, default=BUILD, help="where the results are kept")
    given = parser.parse_args()
    given.build.mkdir(parents=True, exist_ok=True)
    kinds = list(SERIES) if given.kind == "show" else [given.kind]
    good = True
    for kind in kinds:
        path = given.build / f"measuring-{kind}.jsonl"
        if given.kind != "show":
            if given.fresh:
                path.unlink(missing_ok=True)
            asyncio.run(run_series(kind, given.runs or SERIES[kind].runs, path))
        rows = rows_of(path)
        print(summary(kind, rows))
        if len(rows) >= SERIES[kind].runs:
            good &= SERIES[kind].good(sum(row["verdict"] == "faster" for row in rows), len(rows))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

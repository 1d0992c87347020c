"""What is gained by checking behaviour side by side.

The same candidates one by one, and two at once, in one run.

    python -m benchmarks.behaviour
    python -m benchmarks.behaviour --candidates 4 --cpu 0.5

The default is 12 candidates, tests of 2 s of CPU each and 2 slots; it takes 2 to 3 minutes.

The behaviour phase is timed from the first check that begins to the last that ends, through the
engine of `abreast optimize`, with worktrees, confinement and generated inputs; nothing is measured
afterwards. It goes one by one, side by side, side by side, one by one, so that a machine that grows
slower favours neither. It ends with 1 if side by side takes more than 0.6 of the time, if the
verdicts differ, or if there were not as many at once as there are slots.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from abreast.assembly.names import open_run
from abreast.jobs.candidates.behaviour.traced_run import Tests
from abreast.jobs.candidates.evaluator import Bounds, Evaluator
from abreast.jobs.candidates.job import CandidateRun, CandidatesContext, EvaluationOptions
from abreast.jobs.candidates.results import Checked, Proposal, Timed
from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.slot import Slot

ENOUGH = 0.6
SOURCE = '''\
"""Numbers."""


def twice(number):
    """Two of them."""
    return number + number
'''
TEST = """\
import time

from twice import twice


def test_twice():
    began = time.process_time()
    while time.process_time() - began < {cpu}:
        assert twice(21) == 42 or twice(21) > 40
    assert twice(3) == 6
"""


class Unmeasured(Evaluator):
    """Notes when checks begin and end, and how many there are at once; leaves measuring out."""

    began: float | None = None
    ended = 0.0
    running = peak = 0

    async def check(self, slot: Slot, text: str, files: Sequence[FileChange] = ()) -> Checked:
        """The check itself, with a look at the clock before and after."""
        self.began = time.perf_counter() if self.began is None else self.began
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await super().check(slot, text, files)
        finally:
            self.running -= 1
            self.ended = time.perf_counter()

    async def time(self, original: Slot, candidate: Slot, text: str, seed: int) -> Timed:
        """Not this time."""
        del original, candidate, text, seed
        return Timed("undecided", "not measured")


@dataclass(frozen=True, slots=True)
class Phase:
    """One way through: its seconds, the most at once, and the verdicts."""

    seconds: float
    peak: int
    verdicts: tuple[str, ...]


@contextmanager
def project(cpu: float) -> Iterator[Path]:
    """A repository with the function and its test."""
    with tempfile.TemporaryDirectory(prefix="abreast-behaviour-") as place:
        top = Path(place) / "project"
        top.mkdir()
        os.environ["ABREAST_CACHE"] = str(Path(place) / "cache")  # worktrees go with the rest
        (top / "twice.py").write_text(SOURCE, "utf-8")
        (top / "test_twice.py").write_text(TEST.format(cpu=cpu), "utf-8")
        who = ["-c", "user.name=behaviour", "-c", "user.email=behaviour@example.com"]
        for words in (["init", "-q", "."], ["add", "--all"], [*who, "commit", "-q", "-m", "twice"]):
            subprocess.run(["git", *words], cwd=top, check=True, timeout=60)
        yield top


def proposals(count: int) -> list[Proposal]:
    """Candidates that all differ; every third is wrong for one number."""
    found = []
    for number in range(count):
        wrong = "    if number == 3:\n        return 7\n" if number % 3 == 2 else ""
        text = f"def twice(number):\n{wrong}    return number * 2 + {number} - {number}\n"
        found.append(Proposal(f"c{number:02}", text, "file"))
    return found


async def phase(top: Path, count: int, width: int) -> Phase:
    """All of it, at this width."""
    target = Target("twice.py", "twice")
    bench = Unmeasured(target, SOURCE, Tests(("test_twice.py",), sys.executable), Bounds())

    async def propose() -> list[Proposal]:
        return proposals(count)

    async with open_run("behaviour", seed=1) as run:
        tried = await CandidateRun(
            CandidatesContext(target, SOURCE, top, bench, None, EvaluationOptions(width))
        ).run(run, propose)
    assert bench.began is not None
    return Phase(bench.ended - bench.began, bench.peak, tuple(one.verdict for one in tried))


async def compare(count: int, cpu: float, slots: int) -> bool:
    """Both ways, there and back; whether it is good enough."""
    found: dict[int, list[Phase]] = {1: [], slots: []}
    with project(cpu) as top:
        for width in (1, slots, slots, 1):
            one = await phase(top, count, width)
            found[width].append(one)
            counted = ", ".join(
                f"{one.verdicts.count(word)} {word}" for word in sorted(set(one.verdicts))
            )
            print(
                f"width {width}: {one.seconds:.1f} s, at most {one.peak} at once, "
                f"load {os.getloadavg()[0]:.1f}: {counted}",
                flush=True,
            )
    alone, beside = (sum(one.seconds for one in found[width]) for width in (1, slots))
    same = len({one.verdicts for phases in found.values() for one in phases}) == 1
    peaks = {width: {one.peak for one in phases} for width, phases in found.items()}
    print(
        f"{count} candidates, tests of {cpu:g} s of CPU, {slots} slots: "
        f"{beside / alone:.2f} of the time one by one; "
        f"{'the same verdicts' if same else 'OTHER VERDICTS'}"
    )
    return beside <= ENOUGH * alone and same and peaks == {1: {1}, slots: {slots}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--cpu", type=float, default=2.0, help="seconds of CPU that the tests take")
    parser.add_argument("--slots", type=int, default=2)
    given = parser.parse_args()
    sys.exit(0 if asyncio.run(compare(given.candidates, given.cpu, given.slots)) else 1)


if __name__ == "__main__":
    main()

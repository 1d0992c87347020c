"""Measure work S, samples of a model that passes three times in ten.

`python -m benchmarks.sampling [--rounds 3]`.

Every contender draws the same samples one after the other, in a process of its own, from a server
of its own that takes 200 ms for a call. Requests are those that the server let in: what a provider
would bill, losers included. The ideal is a sampler that takes no time itself: as many rounds as it
takes until a draw passes, each of `breadth` draws.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from benchmarks import peers
from benchmarks.measure import SCRATCH, TIMEOUT, NotMeasured
from benchmarks.sampling_server import LATENCY, RATE, first_pass
from benchmarks.tables import Row, aligned

SAMPLES = 30
DEPTH = 24
BREADTHS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Lap:
    """What one process measured."""

    wall: float
    passed: int
    requests: int
    cancelled: int
    version: str


@dataclass(slots=True)
class Contender:
    """Somebody at one breadth, and how it went."""

    label: str
    module: str
    breadth: int
    peer: str | None = None
    laps: list[Lap] = field(default_factory=list)
    missing: str = ""


def contenders() -> list[Contender]:
    """Return who draws, in the order of the table."""
    found = [Contender("abreast.sample", "sample_abreast", breadth) for breadth in BREADTHS]
    found += [
        Contender("mellea rejection", "sample_mellea", breadth, "mellea") for breadth in BREADTHS
    ]
    return [*found, Contender("DSPy BestOfN", "sample_dspy", 1, "dspy")]


def ideal(breadth: int, samples: int) -> tuple[float, int]:
    """Return the seconds and requests of a sampler that takes no time itself."""
    rounds = sum(ceil(first_pass(sample) / breadth) for sample in range(1, samples + 1))
    return rounds * LATENCY, rounds * breadth


def measure(contender: Contender, samples: int) -> Lap:
    """Let it draw once; raises NotMeasured."""
    if contender.peer and not peers.is_installed(contender.peer):
        raise NotMeasured("not installed (python -m benchmarks.peers)", absent=True)
    python = str(peers.python_of(contender.peer)) if contender.peer else sys.executable
    command = [python, "-m", f"benchmarks.contenders.{contender.module}"]
    numbers = [str(samples), str(contender.breadth), str(DEPTH)]
    SCRATCH.mkdir(exist_ok=True)
    with server() as url:
        told = _environment(ours=not contender.peer) | {"BENCHMARK_CHAT": url}
        try:
            done = subprocess.run(
                [*command, *numbers],
                cwd=peers.ROOT,
                env=told,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"longer than {TIMEOUT:.0f} s", absent=False) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["ended without a word"])[-1]
        raise NotMeasured(f"failed: {last}", absent=False)
    lap = Lap(**json.loads(done.stdout.splitlines()[-1]))
    if lap.passed != samples:
        raise NotMeasured(
            f"failed: {samples - lap.passed} of {samples} samples did not pass", absent=False
        )
    return lap


@contextmanager
def server() -> Iterator[str]:
    """Start the server; yields where it is."""
    command = [sys.executable, "-m", "benchmarks.sampling_server"]
    with subprocess.Popen(
        command,
        cwd=peers.ROOT,
        env=_environment(ours=True),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            said = child.stdout.readline() if child.stdout else ""
            yield str(json.loads(said)["url"])
        finally:
            if child.stdin:
                child.stdin.close()


def table(played: Sequence[Contender], samples: int) -> str:
    """Lay the medians out, each beside the ideal of its breadth."""
    heading = (
        "contender",
        "breadth",
        "wall s",
        "ideal s",
        "x ideal",
        "requests",
        "ideal",
        "cancelled",
        "version",
    )
    rows: list[Row] = [heading]
    for one in played:
        seconds, requests = ideal(one.breadth, samples)
        if not one.laps:
            rows.append(
                (
                    one.label,
                    str(one.breadth),
                    one.missing,
                    f"{seconds:.1f}",
                    "",
                    "",
                    str(requests),
                    "",
                    "",
                )
            )
            continue
        wall = median(lap.wall for lap in one.laps)
        billed, gone = (
            median(getattr(lap, name) for lap in one.laps) for name in ("requests", "cancelled")
        )
        rows.append(
            (
                one.label,
                str(one.breadth),
                f"{wall:.2f}",
                f"{seconds:.1f}",
                f"{wall / seconds:.2f}",
                f"{billed:g}",
                str(requests),
                f"{gone:g}",
                one.laps[0].version,
            )
        )
    title = (
        f"S. {samples} samples, a draw takes {LATENCY * 1000:.0f} ms and passes with {RATE:.0%}, "
        f"depth {DEPTH}"
    )
    return "\n".join((title, *aligned(rows)))


def main() -> int:
    """Play, and print the table; 1 if a contender failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampling", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds; the medians count (default 3)"
    )
    parser.add_argument(
        "--samples", type=int, default=SAMPLES, help=f"samples in each (default {SAMPLES})"
    )
    args = parser.parse_args()
    played = contenders()
    failed = False
    for number in range(args.rounds):
        for one in played:
            if one.missing:
                continue
            print(
                f"S {number + 1}/{args.rounds} {one.label} {one.breadth}",
                file=sys.stderr,
                flush=True,
            )
            try:
                one.laps.append(measure(one, args.samples))
            except NotMeasured as reason:
                one.missing, failed = str(reason), failed or not reason.absent
                one.laps.clear()
    print(table(played, args.samples))
    return int(failed)


def _environment(*, ours: bool) -> dict[str, str]:
    """No PYTHON* setting of the caller's decides a number."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "TMPDIR": str(SCRATCH),
        **({"PYTHONPATH": str(peers.ROOT / "src")} if ours else {}),
    }


if __name__ == "__main__":
    sys.exit(main())

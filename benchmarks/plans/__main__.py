"""Measure plans and hold their targets: `python -m benchmarks.plans [--rounds 3]`.

Fifteen subplans at ten, fifty at one to fifty: at most 1.1 x the best there can be. 10,000 files
are divided within 2 s of CPU, alike ones within 1 s. The best of some rounds counts; exits with 1
if one is missed.
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.plans.loads import WIDTHS, divide, layout, makespan, plan_of

MOST = 1.1
SECONDS = {"mixed": 2.0, "alike": 1.0}


def main() -> int:
    """Print every figure with its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    missed = 0

    def say(what: str, figure: float, target: float, unit: str) -> None:
        nonlocal missed
        missed += figure > target
        print(f"{what:<44} {figure:7.3f} {unit}  (at most {target:g})", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(folder, f"{number}.db") for number in range(rounds)]
        fifteen, fifty = plan_of(15), plan_of(50)
        say("15 subplans at 10", min(makespan(fifteen, 10) for _ in range(rounds)), MOST, "x ideal")
        say(
            "15 subplans at 10, in a store",
            min(makespan(fifteen, 10, 0.3, place) for place in stores),
            MOST,
            "x ideal",
        )
    for width in WIDTHS:
        # One by one they take five seconds: once is enough, there is nothing to wait for but
        # themselves.
        times = 1 if width == 1 else rounds
        say(
            f"50 subplans at {width}",
            min(makespan(fifty, width) for _ in range(times)),
            MOST,
            "x ideal",
        )
    for kind, target in SECONDS.items():
        for count in (1_000, 10_000):
            files = layout(kind, count)
            took = []
            for _ in range(rounds):
                begun = time.process_time()
                divide(kind, files)
                took.append(time.process_time() - begun)
            say(f"{count:,} {kind} files divided", min(took), target, "s of CPU")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""Print what limiters reach in virtual time: `python -m benchmarks.limits [--worlds 100]`."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

from abreast.limits.governor import Governor
from abreast.testing.storm.settings import Settings
from benchmarks.limits.rivals import Aimd, Pacer, Static
from benchmarks.limits.scenarios import Scenario, drawn, scenarios
from benchmarks.limits.virtual import Limiter, Score, play

OURS = "abreast"
LIMITERS: dict[str, Callable[[Settings], Limiter]] = {
    OURS: lambda settings: Governor(minute=settings.minute),
    "static 4": lambda settings: Static(4, settings.scale),
    "static 16": lambda settings: Static(16, settings.scale),
    "static 100": lambda settings: Static(100, settings.scale),
    "AIMD": lambda settings: Aimd(settings.scale),
    "pacer": lambda settings: Pacer(settings.scale),
}


def main() -> None:
    """Print the table of scenarios, and how the worlds are distributed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--worlds", type=int, default=100, help="how many worlds to draw at random")
    args = parser.parse_args()
    print("Utilisation % / rejected %; * = cut off at twice the best time\n")
    print(f"{'scenario':26}" + "".join(f"{name:>14}" for name in LIMITERS))
    for scenario in scenarios():
        cells = [_cell(_played(scenario, make, cut=2)) for make in LIMITERS.values()]
        print(f"{scenario.name:26}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
    if args.worlds:
        _print_worlds(args.worlds)


def _print_worlds(count: int) -> None:
    scores = [_played(drawn(seed), LIMITERS[OURS], cut=12, seed=seed) for seed in range(count)]
    reached = sorted(100 * score.utilisation for score in scores)
    rejected = sorted(100 * score.rejected for score in scores)
    print(f"\n{count} worlds drawn at random: utilisation median {statistics.median(reached):.1f}%, worst "
          f"{reached[0]:.1f}%, tenth {reached[count // 10]:.1f}%; rejected median {statistics.median(rejected):.2f}%, "
          f"most {rejected[-1]:.1f}%; {sum(score.lost > 0 for score in scores)} with calls cut off")  # fmt: skip


def _played(scenario: Scenario, make: Callable[[Settings], Limiter], cut: float, seed: int = 0) -> Score:
    return play(scenario.settings, scenario.calls, make, seed=seed, cut=cut)


def _cell(score: Score) -> str:
    reached = "*" if score.lost else f"{100 * score.utilisation:.1f}"
    return f"{reached}/{100 * score.rejected:.1f}"


if __name__ == "__main__":
    main()

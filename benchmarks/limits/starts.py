"""How runs start: `python -m benchmarks.limits.starts`, in virtual time.

The first seconds: how long it takes until 90% of what could have been admitted by then was
admitted, and how many calls were rejected on the way. And a second run of the governor, which
starts with what the first has learned.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable

from abreast.limits.governor.governor import Governor
from abreast.testing.storm.settings import Settings
from abreast.testing.storm.world import World
from benchmarks.limits.__main__ import LIMITERS
from benchmarks.limits.scenarios import Scenario, five_providers, scenarios
from benchmarks.limits.virtual import Limiter, StormLane, best_run, play

_SHARE = 0.9
_CUT = 2.0  # times the best time
_CHANGING = {"step"}  # what a first run learns there is wrong for a second
_SHOWN = ("abreast", "static 16", "static 100", "AIMD", "pacer")


def first_seconds(
    scenario: Scenario, make: Callable[[Settings], Limiter]
) -> tuple[float, int] | None:
    """The seconds until 90% are used, and the rejections until then; None if they never are."""
    best, ideal = best_run(scenario.settings, scenario.calls)
    lane = StormLane(
        World(scenario.settings), list(reversed(scenario.calls)), make(scenario.settings)
    )
    lane.run(_CUT * best)
    possible, admitted = _times(ideal, "admitted"), _times(lane.world, "admitted")
    for count, when in enumerate(admitted, 1):
        if count > 1 and count >= _SHARE * bisect_right(possible, when):
            return when, bisect_right(_times(lane.world, "rejected"), when)
    return None


def _times(world: World, verdict: str) -> list[float]:
    return [entry.t_arrive for entry in world.ledger.entries if entry.verdict == verdict]


def second_run(scenario: Scenario) -> tuple[float, float]:
    """The utilisation of a first run, and of one that knows what the first has learned."""
    first: list[Governor] = []

    def make(settings: Settings) -> Governor:
        known = first[0].known() if first else None
        first.append(Governor(minute=settings.minute, known=known))
        return first[-1]

    one, other = (play(scenario.settings, scenario.calls, make, cut=_CUT) for _ in range(2))
    return one.utilisation, other.utilisation


def main() -> int:
    """Print both tables."""
    lanes = [*scenarios(), *five_providers()]
    print("Seconds until 90% of what is possible is used / rejected until then; -: never\n")
    print(f"{'scenario':26}" + "".join(f"{name:>13}" for name in _SHOWN))
    for scenario in lanes:
        cells = [first_seconds(scenario, LIMITERS[name]) for name in _SHOWN]
        texts = ["-" if cell is None else f"{cell[0]:.1f}/{cell[1]}" for cell in cells]
        print(f"{scenario.name:26}" + "".join(f"{text:>13}" for text in texts), flush=True)
    print(f"\n{'utilisation %':26}{'first run':>13}{'second run':>13}")
    for scenario in lanes:
        if scenario.name not in _CHANGING:
            one, other = second_run(scenario)
            print(f"{scenario.name:26}{100 * one:13.1f}{100 * other:13.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

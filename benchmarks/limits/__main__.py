"""Print what limiters reach.

`python -m benchmarks.limits [--virtual] [--worlds 100 --seed 1] [--only WORD] [--repeat 3]`.

Over loopback, against storm servers whose minute lasts three seconds: the nine scenarios with every
limiter, and inspect_ai's own controller from its environment (`make bench-peers`). With --virtual
the same in virtual time, which takes seconds and gives the same numbers on every machine; with
--worlds, worlds drawn at random instead, and with --world one of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from abreast.limits.governor.governor import Governor
from abreast.testing.storm.settings import Settings
from benchmarks.limits.rivals import Aimd, Pacer, Static
from benchmarks.limits.scenarios import Scenario, five_providers, scenarios
from benchmarks.limits.virtual import Limiter, play
from benchmarks.limits.world_table import WORLD_LIMITERS, print_world, print_worlds
from benchmarks.peers import is_installed

OURS = "abreast"
INSPECT = "inspect_ai"
LIMITERS: dict[str, Callable[[Settings], Limiter]] = {
    OURS: lambda settings: Governor(minute=settings.minute),
    "static 1": lambda settings: Static(1, settings.scale),
    "static 4": lambda settings: Static(4, settings.scale),
    "static 16": lambda settings: Static(16, settings.scale),
    "static 100": lambda settings: Static(100, settings.scale),
    "AIMD": lambda settings: Aimd(settings.scale),
    "pacer": lambda settings: Pacer(settings.scale),
}
FIVE = "five providers, one slow"
_STRICT = 5  # scenarios whose utilisation has a bound of its own
_ENOUGH, _FEW, _TIE = 0.95, 0.01, 0.01


class Cell(NamedTuple):
    """What one limiter reached in one scenario."""

    utilisation: float
    rejected: float
    lost: int

    def __str__(self) -> str:
        """In percent."""
        return f"{100 * self.utilisation:.1f}{'*' if self.lost else ''}/{100 * self.rejected:.1f}"


def courses() -> dict[str, list[Scenario]]:
    """The nine scenarios: the lanes of each."""
    return {scenario.name: [scenario] for scenario in scenarios()} | {FIVE: five_providers()}


def main() -> int:
    """Print the table of scenarios and the verdict, or how the worlds are distributed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--virtual", action="store_true", help="in virtual time")
    parser.add_argument(
        "--worlds", type=int, default=0, help="with --virtual: so many worlds drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="what the worlds are drawn from (0)")
    parser.add_argument("--world", type=int, help="with --virtual: the world of this seed alone")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the worlds (1)")
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    parser.add_argument("--limiter", action="append", help="only this limiter; may be repeated")
    parser.add_argument(
        "--minute", type=float, default=3.0, help="over loopback: seconds that a minute lasts (3)"
    )
    parser.add_argument("--repeat", type=int, default=1, help="how often (1)")
    args = parser.parse_args()
    if args.worlds or args.world is not None:
        return _random_worlds(args)
    chosen = {name: lanes for name, lanes in courses().items() if args.only in name}
    limiters = [*LIMITERS, *([] if args.virtual else [INSPECT])]
    if INSPECT in limiters and not is_installed("inspect-ai"):
        print("inspect_ai is left out: its environment is not there (make bench-peers)")
        limiters.remove(INSPECT)
    limiters = [name for name in limiters if not args.limiter or name in args.limiter]
    is_well = True
    for _ in range(args.repeat if chosen else 0):
        is_well = (
            _print_table(chosen, limiters, virtual=args.virtual, minute=args.minute) and is_well
        )
    return 0 if is_well else 1


def _random_worlds(args: argparse.Namespace) -> int:
    limiters = [name for name in WORLD_LIMITERS if not args.limiter or name in args.limiter]
    if not args.virtual or not limiters:
        print(
            f"random worlds need --virtual, and a limiter of: {', '.join(WORLD_LIMITERS)}",
            file=sys.stderr,
        )
        return 2
    if args.world is not None:
        print_world(args.world, limiters)
        return 0
    return 0 if print_worlds(args.worlds, args.seed, limiters, args.jobs) else 1


def _print_table(
    chosen: dict[str, list[Scenario]], limiters: Sequence[str], *, virtual: bool, minute: float
) -> bool:
    times = "twice" if virtual else "one and a half times"
    print(
        f"Utilisation % / rejected %; * = cut off at {times} the best time, "
        "and what was used until then\n"
    )
    print(f"{'scenario':26}" + "".join(f"{name:>13}" for name in limiters))
    failures: list[str] = []
    strict = list(courses())[:_STRICT]
    for name, lanes in chosen.items():
        print(f"{name:26}", end="", flush=True)
        row: dict[str, Cell] = {}
        for limiter in limiters:
            row[limiter] = (
                lanes_played(lanes, limiter) if virtual else _sent(lanes, limiter, minute)
            )
            print(f"{row[limiter]!s:>13}", end="", flush=True)
        print()
        failures += _failures(name, row, strict=name in strict)
    for failure in failures:
        print(f"not reached: {failure}")
    if not failures:
        print(
            "all reached: no call lost, of those that reject less than 1% the best, "
            f"and in the first {_STRICT} at least 95% and less than 1% rejected"
        )
    print(flush=True)
    return not failures


def _failures(name: str, row: dict[str, Cell], *, strict: bool) -> list[str]:
    """What the governor should have reached and has not."""
    ours = row.get(OURS)
    if ours is None:
        return []
    found = []
    if ours.lost:
        found.append(f"{name}: {ours.lost} calls were not done in time")
    if strict and (ours.utilisation < _ENOUGH or ours.rejected >= _FEW):
        found.append(f"{name}: {ours} is not 95/1")
    for other, cell in row.items():
        if (
            other != OURS
            and cell.rejected < _FEW
            and not cell.lost
            and cell.utilisation > ours.utilisation + _TIE
        ):
            found.append(f"{name}: {other} is better, {cell} to {ours}")
    return found


def _sent(lanes: Sequence[Scenario], limiter: str, minute: float) -> Cell:
    from benchmarks.limits.loopback import run

    result = run(lanes, LIMITERS.get(limiter), minute)
    return Cell(result.utilisation, result.turned_away, result.lost)


def lanes_played(lanes: Sequence[Scenario], limiter: str, cut: float = 2, seed: int = 0) -> Cell:
    """Lanes that know nothing of each other: all is done when the last one is."""
    scores = [
        play(lane.settings, lane.calls, LIMITERS[limiter], seed=seed, cut=cut) for lane in lanes
    ]
    lost = sum(score.lost for score in scores)
    seconds, best = max(score.seconds for score in scores), max(score.best for score in scores)
    sent = sum(score.sent for score in scores)
    done = 1 - lost / sum(len(lane.calls) for lane in lanes)
    rejected = sum(score.rejected * score.sent for score in scores) / max(1, sent)
    return Cell(best / (cut * best if lost else seconds) * done, rejected, lost)


if __name__ == "__main__":
    sys.exit(main())

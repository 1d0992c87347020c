"""Tables of what limiters reach in random worlds: the distribution, the worst, and one world."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from abreast.limits.governor.governor import Governor
from benchmarks.limits.random_worlds import RandomWorld, draw_world
from benchmarks.limits.rivals import AdaptiveConnections, Aimd, Pacer, Static
from benchmarks.limits.virtual import Limiter
from benchmarks.limits.world_lane import WorldScore, play_world
from benchmarks.limits.world_server import best_time

OURS = "abreast"
WORLD_LIMITERS: dict[str, Callable[[], Limiter]] = {
    OURS: Governor,
    "static 4": lambda: Static(4),
    "static 16": lambda: Static(16),
    "AIMD": Aimd,
    "pacer": Pacer,
    "inspect_ai's kind": AdaptiveConnections,
}
SEEDS = 1_000_000  # worlds of one --seed: that of the first is the seed times this
_CUT, _RIVALS_CUT = 10.0, 3.0
_WORST = 12  # worlds to list
_MEDIAN, _FIFTH, _FIRST = 0.97, 0.88, 0.75
_REJECTED_MEDIAN, _REJECTED_95TH = 0.005, 0.02


def score_world(seed: int, limiters: Sequence[str]) -> dict[str, WorldScore]:
    """What each limiter reaches in the world of a seed."""
    world = draw_world(seed)
    best = best_time(world)
    return {name: _score(world, name, best) for name in limiters}


def _score(world: RandomWorld, name: str, best: float) -> WorldScore:
    score = play_world(
        world, WORLD_LIMITERS[name](), best, cut=_CUT if name == OURS else _RIVALS_CUT
    )
    return score.without_times()


def print_worlds(count: int, seed: int, limiters: Sequence[str], jobs: int) -> bool:
    """Print the distribution over worlds drawn from a seed; return whether the aims are reached."""
    seeds = range(seed * SEEDS, seed * SEEDS + count)
    rows: dict[int, dict[str, WorldScore]] = {}
    for number, row in zip(seeds, _scores(seeds, limiters, jobs), strict=True):
        rows[number] = row
        if sys.stderr.isatty():
            print(f"\r{len(rows)} of {count} worlds", end="", file=sys.stderr)
    print(
        f"{count} worlds of seed {seed}: share of the best possible, and rejected requests, in %\n"
    )
    print(f"{'limiter':20}{'median':>8}{'5th':>8}{'1st':>8}{'rejected':>12}{'95th':>8}{'lost':>8}")
    for name in limiters:
        _print_limiter(name, [row[name] for row in rows.values()])
    print()
    if OURS not in limiters:
        return True
    _print_worst(rows)
    return _reaches_aims([row[OURS] for row in rows.values()])


def _scores(
    seeds: Sequence[int], limiters: Sequence[str], jobs: int
) -> Iterator[dict[str, WorldScore]]:
    score = partial(score_world, limiters=limiters)
    if jobs == 1:
        yield from map(score, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(score, seeds, chunksize=4)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent are not above."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def _print_limiter(name: str, scores: Sequence[WorldScore]) -> None:
    shares = [100 * score.share for score in scores]
    rejected = [100 * score.rejected_share for score in scores]
    lost = sum(score.lost for score in scores)
    print(
        f"{name:20}{statistics.median(shares):8.1f}{percentile(shares, 5):8.1f}"
        f"{percentile(shares, 1):8.1f}{statistics.median(rejected):12.2f}"
        f"{percentile(rejected, 95):8.2f}{lost:8}"
    )


def _print_worst(rows: dict[int, dict[str, WorldScore]]) -> None:
    by_share = sorted(rows, key=lambda seed: rows[seed][OURS].share)
    by_rejected = sorted(rows, key=lambda seed: -rows[seed][OURS].rejected_share)
    for title, seeds in (("least used", by_share), ("most rejected", by_rejected)):
        print(f"{title} (one alone: --virtual --world SEED)")
        for seed in seeds[:_WORST]:
            score = rows[seed][OURS]
            print(
                f"  {seed:>10} {100 * score.share:5.1f}/{100 * score.rejected_share:.2f}"
                f"{f' {score.lost} lost' if score.lost else ''}  {draw_world(seed).describe()}"
            )
    print()


def _reaches_aims(scores: Sequence[WorldScore]) -> bool:
    shares = [score.share for score in scores]
    rejected = [score.rejected_share for score in scores]
    reached = {
        "median at least 97%": statistics.median(shares) >= _MEDIAN,
        "5th percentile at least 88%": percentile(shares, 5) >= _FIFTH,
        "1st percentile at least 75%": percentile(shares, 1) >= _FIRST,
        "median of rejected below 0.5%": statistics.median(rejected) < _REJECTED_MEDIAN,
        "95th percentile of rejected below 2%": percentile(rejected, 95) < _REJECTED_95TH,
        "no call lost": not any(score.lost for score in scores),
    }
    for aim, is_reached in reached.items():
        print(f"{'reached' if is_reached else 'not reached'}: {aim}")
    return all(reached.values())


def print_world(seed: int, limiters: Sequence[str]) -> None:
    """Print one world, and what each limiter reaches in it."""
    print(draw_world(seed).describe())
    for name, score in score_world(seed, limiters).items():
        print(
            f"  {name:20}{100 * score.share:6.1f}% in {score.seconds:,.0f} s "
            f"(best {score.best:,.0f} s), {score.rejected} of {score.sent} rejected, "
            f"{score.lost} lost"
        )

"""Verdicts by laps, for candidates that are plainly faster or slower than the original.

In each lap every arm runs once, in an order that is drawn. One of three equal arms is the quickest
in a third of the laps, and the slowest in a third, whatever the noise of the machine and however
long its bursts are. So laps can be counted: nothing has to be known about the noise.
"""

import math
from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import Literal, NamedTuple

from abreast.jobs.candidates.timing.intervals import Interval

FIRST_BY_CHANCE = 1 / 3  # of a lap: that one of three equal arms is the first, or the last
PLAIN_RATIO = 2.0  # a plainly faster candidate is faster than both others by this, in every lap
# The share of equal candidates that may be called slower at a look. Nothing is accepted by it.
_FALSE_SLOWER = 1e-3


class Lap(NamedTuple):
    """The seconds of one run of each arm."""

    original: float
    candidate: float
    control: float


class LapVerdict(NamedTuple):
    """What the laps say, with the ratios of original to candidate and to control."""

    speed: Literal["faster", "slower"]
    candidate: Interval
    control: Interval


def judge_laps(
    laps: Sequence[Lap], *, threshold: float, alike: float, false_faster: float
) -> LapVerdict | None:
    """Return the verdict if the candidate is plainly faster or slower, else None.

    Faster: in every lap it is more than twice as fast as both others, and its least ratio passes
    the threshold and the largest that original and control have in a lap. There must be so many
    laps that chance gives this to an equal candidate with a probability of at most `false_faster`.
    This may be asked after every lap: what holds for all laps so far held for the first ones, too.

    Slower: it is the slowest in so many laps, at least half of them, that chance would give with a
    probability of 0.1%, and by the median it is slower by more than `alike`.
    """
    if FIRST_BY_CHANCE ** len(laps) <= false_faster:
        found, noise = _intervals(laps, len(laps))
        if found.low > max(PLAIN_RATIO, 1 + threshold, 1 + noise.spread):
            return LapVerdict("faster", found, noise)
    needed = _needed_laps(len(laps))
    if needed is not None:
        found, noise = _intervals(laps, needed)
        if found.high < 1 and found.ratio < 1 / (1 + alike):
            return LapVerdict("slower", found, noise)
    return None


@cache
def _needed_laps(laps: int) -> int | None:
    """In how many of the laps an arm must be the slowest; None if there are too few laps."""
    needed, tail = None, 0.0
    for count in range(laps, laps // 2, -1):
        tail += chance_of(range(count, count + 1), laps, FIRST_BY_CHANCE)
        if tail > _FALSE_SLOWER:
            break
        needed = count
    return needed


def _intervals(laps: Sequence[Lap], count: int) -> tuple[Interval, Interval]:
    """Return the median ratio of candidate and of control, with the bounds that `count` laps keep.

    In `count` laps, the candidate's ratio to both others is at least `low`, and in as many it is at
    most `high`: these are the ratios at which the counting of laps would just decide.
    """
    ratios = [
        (min(ours, other) / mine, ours / mine, max(ours, other) / mine)
        for ours, mine, other in laps
    ]
    control = [ours / other for ours, _, other in laps]
    least, middle, most = zip(*ratios, strict=True)
    return (
        Interval(median(middle), *_bounds(least, most, count)),
        Interval(median(control), *_bounds(control, control, count)),
    )


def _bounds(least: Sequence[float], most: Sequence[float], count: int) -> tuple[float, float]:
    return sorted(least, reverse=True)[count - 1], sorted(most)[count - 1]


def chance_of(counts: range, tries: int, chance: float) -> float:
    """The probability of one of these counts of successes in so many tries."""
    success, failure, ways = math.log(chance), math.log1p(-chance), math.lgamma(tries + 1)
    return math.fsum(  # by logarithms: the ways of a thousand tries are too many for a float
        math.exp(
            ways
            - math.lgamma(count + 1)
            - math.lgamma(tries - count + 1)
            + count * success
            + (tries - count) * failure
        )
        for count in counts
    )

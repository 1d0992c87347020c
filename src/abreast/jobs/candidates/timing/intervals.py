"""Intervals of ratios of times: the trimmed mean of blocks, with its error.

Location is the mean with a fifth of the blocks trimmed at either end, since a machine has bursts of
other work. Its standard error is bootstrapped over stretches of neighbouring blocks, since they are
correlated; the interval is that error times a quantile of Student's t. It is written here instead
of using SciPy: a percentile interval can't reach the 0.03% tail that is needed here from a dozen
blocks, and the standard library has all the rest. It is seeded: the same times give the same
interval.
"""

import hashlib
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, pstdev

_TRIMMED_SHARE = 0.2  # of the blocks, at either end


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of times, original to other, with its bounds: 2 is twice as fast."""

    ratio: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """How far from 1 the ratio may be, in either direction, as a share."""
        return max(self.high, 1 / self.low) - 1


def interval(logs: Sequence[float], confidence: float, resamples: int, seed: int) -> Interval:
    """Return the trimmed mean of log-ratios and its bounds, as ratios.

    The true value is beyond either bound with probability 1 - `confidence`.
    """
    n = len(logs)
    cut = max(1, int(n * _TRIMMED_SHARE))
    kept = sorted(logs)[cut : n - cut]
    low, high = kept[0], kept[-1]
    # Tukey and McLaughlin: the error of a trimmed mean is that of the winsorised one, over the
    # share that is kept.
    error = (
        _bootstrap_error([min(max(one, low), high) for one in logs], resamples, seed)
        * n
        / len(kept)
    )
    centre = fmean(kept)
    width = student_t(confidence, len(kept) - 1) * error
    return Interval(math.exp(centre), math.exp(centre - width), math.exp(centre + width))


def _bootstrap_error(values: Sequence[float], resamples: int, seed: int) -> float:
    """Return the standard error of the mean by a circular block bootstrap."""
    n = len(values)
    length = max(1, round(n ** (1 / 3)))
    twice = [*values, *values]
    sums = [math.fsum(twice[at : at + length]) for at in range(n)]
    draws = -(-n // length)
    stream = array("I")
    stream.frombytes(
        hashlib.shake_256(str(seed).encode()).digest(stream.itemsize * draws * resamples)
    )
    size = draws * length
    means = [
        math.fsum(sums[one % n] for one in stream[at : at + draws]) / size
        for at in range(0, len(stream), draws)
    ]
    # Whole blocks are a few more than n values, and a bootstrap has only (n - length) / n of the
    # variance.
    spread: float = pstdev(means)
    return spread * math.sqrt(size / max(1, n - length))


@cache
def student_t(confidence: float, freedom: int) -> float:
    """Return the quantile of Student's t for a confidence above a half.

    Found by bisection: the central probability is a finite sum.
    """
    low, high = 0.0, 1.0
    while _central_probability(high, freedom) < 2 * confidence - 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if _central_probability(middle, freedom) < 2 * confidence - 1
            else (low, middle)
        )
    return high


def _central_probability(t: float, freedom: int) -> float:
    """The probability that a value of Student's t lies between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term, terms = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for at in range(2 if odd else 1, freedom, 2):
        terms += term
        term *= square * at / (at + 1)
    return 2 / math.pi * (angle + math.sin(angle) * terms) if odd else math.sin(angle) * terms

"""Forecast of what is left of a study: cells, tokens, money and time, each with an interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final, NamedTuple

# Student's t for a two-sided interval of 95%, by degrees of freedom: 1, 2, 3, ... For more, the
# normal distribution's value is used.
_STUDENT_T: Final = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
    2.09,
)
_NORMAL_Z: Final = 1.96
# A guess is taken to be off by up to this part of itself.
_GUESS_ERROR: Final = 0.75


class ForecastInterval(NamedTuple):
    """The most likely value and its 95% interval."""

    low: float
    likely: float
    high: float

    def __add__(self, other: "ForecastInterval") -> "ForecastInterval":  # type: ignore[override]
        """Add independent amounts: their uncertainties add up as squares."""
        likely = self.likely + other.likely
        down = math.hypot(self.likely - self.low, other.likely - other.low)
        up = math.hypot(self.high - self.likely, other.high - other.likely)
        return ForecastInterval(max(0.0, likely - down), likely, likely + up)


ZERO: Final = ForecastInterval(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ArmSeen:
    """What is known of an arm: the amounts of cells that ended, or a guess if none did."""

    lane: str
    left: int
    tokens: Sequence[float] = ()
    usd: Sequence[float] = ()
    seconds: Sequence[float] = ()
    guess: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """Tokens, money and seconds of a cell, used if no cell has ended."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is left to do, and what it will take."""

    cells: int
    tokens: ForecastInterval
    usd: ForecastInterval
    seconds: ForecastInterval
    bottleneck: str | None
    """The lane that ends last."""


def forecast(arms: Sequence[ArmSeen], width: int | Mapping[str, int]) -> Forecast:
    """Forecast what is left, from the cells of each arm that have ended.

    Lanes run in parallel, with `width` cells at once in each.
    """
    tokens = usd = ZERO
    lanes: dict[str, ForecastInterval] = {}
    longest: dict[str, float] = {}
    for arm in arms:
        if not arm.left:
            continue
        tokens += total(arm.tokens, arm.left, arm.guess[0])
        usd += total(arm.usd, arm.left, arm.guess[1])
        lanes[arm.lane] = lanes.get(arm.lane, ZERO) + total(arm.seconds, arm.left, arm.guess[2])
        longest[arm.lane] = max(longest.get(arm.lane, 0.0), *(arm.seconds or (arm.guess[2],)))
    ends = {
        lane: _in_parallel(whole, width if isinstance(width, int) else width[lane], longest[lane])
        for lane, whole in lanes.items()
    }
    last = max(ends, key=lambda lane: ends[lane].likely, default=None)
    seconds = (
        ZERO
        if last is None
        else ForecastInterval(*(max(end[part] for end in ends.values()) for part in range(3)))
    )
    return Forecast(sum(arm.left for arm in arms), tokens, usd, seconds, last)


def total(seen: Sequence[float], left: int, guess: float) -> ForecastInterval:
    """The sum of `left` further amounts like those seen."""
    count = len(seen)
    likely = (fmean(seen) if seen else guess) * left
    if count < 2:  # noqa: PLR2004 - one amount has no deviation
        return ForecastInterval(likely * (1 - _GUESS_ERROR), likely, likely * (1 + _GUESS_ERROR))
    t = _STUDENT_T[count - 2] if count - 1 <= len(_STUDENT_T) else _NORMAL_Z
    error = t * stdev(seen) * left * math.sqrt(1 / count + 1 / left)
    return ForecastInterval(max(0.0, likely - error), likely, likely + error)


def _in_parallel(work: ForecastInterval, width: int, longest: float) -> ForecastInterval:
    """Seconds until `work` is done with `width` cells at once; the last cell may begin late."""
    return ForecastInterval(
        work.low / width, work.likely / width + longest / 2, work.high / width + longest
    )

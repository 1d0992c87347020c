"""Statistics over lists of numbers, by SciPy and statsmodels: intervals, tests, correlations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from abreast.system.installation import install_hint

FEWEST: Final = 6
"""Pairs that a test needs: with five, no two-sided signed-rank test has a p below 0.05."""

LEVEL: Final = 0.95
"""The level of confidence of all intervals."""
TRACE: Final = 0.1
"""Correlations below this are too weak to matter."""
_MAX_EXACT_PAIRS: Final = 13  # with which all 2**n signs are tried; SciPy does the rest


class NeedsReport(ImportError):
    """The packages for statistics and reports are not installed; the message says how to."""


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean over inputs, with each input's repeats averaged first, and its interval.

    `method` says how the interval was computed, or why there is none.
    """

    n: int
    """Cells."""
    inputs: int
    mean: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""


@dataclass(frozen=True, slots=True)
class Paired:
    """How far a second list of numbers is from the first, pair by pair.

    `effect` is the matched-pairs rank-biserial correlation, from -1 (every pair went down) to 1
    (every pair went up).
    """

    pairs: int
    mean: float | None
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    test: str = ""
    """Which test was made, or why none was."""
    p: float | None = None
    adjusted: float | None = None
    """`p` after Holm's correction for all tests of its family; `None` where there was no test."""

    @property
    def clear(self) -> bool:
        """Whether the difference is significant at the level of 0.05 after correction."""
        return self.adjusted is not None and self.adjusted < 1 - LEVEL


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile and its distribution-free interval; too few numbers give no bound."""

    share: float
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation; `rho` and `p` are None where it is not defined."""

    n: int
    rho: float | None
    p: float | None

    @property
    def clear(self) -> bool:
        """Whether it is significant, and not negligible.

        With thousands of numbers, a negligible correlation is significant too.
        """
        return (
            self.rho is not None
            and self.p is not None
            and self.p < 1 - LEVEL
            and abs(self.rho) >= TRACE
        )


def estimate(blocks: Sequence[Sequence[float]]) -> MeanEstimate:
    """The mean over inputs and its 95% interval; a block is the values of one input's repeats.

    Wilson's interval where all is 0 or 1 and no input has repeats, or where every value is the
    same; otherwise Student's t over the inputs' averages, cut at 0 and 1 if all values lie between.
    """
    means = [math.fsum(block) / len(block) for block in blocks if block]
    cells, inputs = sum(map(len, blocks)), len(means)
    if not means:
        return MeanEstimate(cells, 0, None, method="nothing to average")
    found = MeanEstimate(cells, inputs, math.fsum(means) / inputs)
    binary = all(value in (0, 1) for block in blocks for value in block)
    alike = max(means) == min(means)
    if binary and (alike or cells == inputs):
        low, high = _wilson(math.fsum(means), inputs)
        return replace(found, low=low, high=high, method="Wilson")
    if inputs == 1:
        return replace(found, method="no interval: one input")
    if alike:
        return replace(found, method="no interval: every input alike")
    low, high = _student(means)
    if all(0 <= value <= 1 for value in means):
        low, high = max(low, 0.0), min(high, 1.0)
    return replace(found, low=low, high=high, method="t")


def paired(before: Sequence[float], after: Sequence[float]) -> Paired:
    """Test how the second differs from the first, pair by pair, not yet corrected.

    McNemar's exact test where all is 0 or 1, otherwise Wilcoxon's signed ranks with Pratt's
    treatment of zeros. The interval of the mean difference is Student's t.
    """
    # Rounded to twelve digits, so that a rounding error gets no rank: 0.1 + 0.2 equals 0.3.
    differences = [round(new - old, 12) + 0.0 for old, new in zip(before, after, strict=True)]
    count = len(differences)
    if not count:
        return Paired(0, None, test="no input in common")
    found = Paired(count, math.fsum(differences) / count, effect=_rank_biserial(differences))
    if max(differences) > min(differences):
        low, high = _student(differences)
        found = replace(found, low=low, high=high)
    if count < FEWEST:
        return replace(found, test=f"too few inputs to test: {count} of at least {FEWEST}")
    if not any(differences):
        return replace(found, test="no pair differs", p=1.0)
    if all(value in (0, 1) for value in (*before, *after)):
        return replace(found, test="McNemar", p=_mcnemar(differences))
    return replace(found, test="Wilcoxon", p=_wilcoxon(differences))


def holm(found: Sequence[Paired]) -> list[Paired]:
    """The same tests, each with its `p` corrected for all of them."""
    return [
        replace(one, adjusted=value)
        for one, value in zip(found, corrected([one.p for one in found]), strict=True)
    ]


def corrected(values: Sequence[float | None]) -> list[float | None]:
    """Each p corrected by Holm's step-down method for the number of tests."""
    # Not by statsmodels, which collects all garbage of the process at every call.
    tested = sorted((value, at) for at, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, at) in enumerate(tested):
        highest = max(highest, min(1.0, value * (len(tested) - rank)))
        adjusted[at] = highest
    return adjusted


def quantiles(values: Sequence[float], shares: Sequence[float]) -> tuple[Quantile, ...]:
    """Quantiles of at least one number, with 95% intervals from the ranks alone."""
    numpy, stats = _import("numpy"), _import("scipy.stats")
    found = []
    for share in shares:
        value = float(numpy.quantile(values, share))
        bounds = stats.quantile_test(values, q=value, p=share).confidence_interval(
            confidence_level=LEVEL
        )
        low, high = (float(bound) if math.isfinite(bound) else None for bound in bounds)
        found.append(Quantile(share, value, low, high))
    return tuple(found)


def correlation(first: Sequence[float], second: Sequence[float]) -> Correlation:
    """Test whether the second grows with the first, by ranks."""
    count = len(first)
    if count < FEWEST or len(set(first)) == 1 or len(set(second)) == 1:
        return Correlation(count, None, None)
    found = _import("scipy.stats").spearmanr(first, second)
    return Correlation(count, float(found.statistic), float(found.pvalue))


def _wilson(successes: float, count: int) -> tuple[float, float]:
    low, high = _import("statsmodels.stats.proportion").proportion_confint(
        successes, count, alpha=1 - LEVEL, method="wilson"
    )
    return max(float(low), 0.0), min(float(high), 1.0)


def _student(values: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the mean of at least two values that differ."""
    bounds = (
        _import("scipy.stats").ttest_1samp(values, 0.0).confidence_interval(confidence_level=LEVEL)
    )
    return float(bounds.low), float(bounds.high)


def _wilcoxon(differences: Sequence[float]) -> float:
    """The p of Wilcoxon's test.

    With few pairs that differ, all signs are tried here, with ties or without; SciPy's own exact
    method takes a second per test.
    """
    stats = _import("scipy.stats")
    # Pratt: zeros get ranks, and are then left out.
    ranks = stats.rankdata([abs(value) for value in differences])
    signed = [
        math.copysign(rank, value) for rank, value in zip(ranks, differences, strict=True) if value
    ]
    if len(signed) > _MAX_EXACT_PAIRS:
        return float(stats.wilcoxon(differences, zero_method="pratt").pvalue)
    if len(signed) == 1:
        return 1.0
    found = stats.permutation_test(
        (signed,),
        _import("numpy").sum,
        permutation_type="samples",
        vectorized=True,
        n_resamples=2 ** len(signed),
    )
    return float(found.pvalue)


def _mcnemar(differences: Sequence[float]) -> float:
    up, down = (sum(value == way for value in differences) for way in (1, -1))
    return min(
        1.0,
        float(
            _import("statsmodels.stats.contingency_tables")
            .mcnemar([[0, up], [down, 0]], exact=True)
            .pvalue
        ),
    )


def _rank_biserial(differences: Sequence[float]) -> float:
    """Kerby's simple difference: the share of ranks that went up, less the share that went down.

    Zeros have no rank.
    """
    moved = [value for value in differences if value]
    if not moved:
        return 0.0
    ranks = _import("scipy.stats").rankdata([abs(value) for value in moved]).tolist()
    signed = math.fsum(math.copysign(rank, value) for rank, value in zip(ranks, moved, strict=True))
    return signed / math.fsum(ranks)


def _import(name: str) -> Any:  # noqa: ANN401 - neither package has types
    try:
        return import_module(name)
    except ImportError as error:
        raise NeedsReport(
            f"statistics need SciPy and statsmodels: {install_hint('report')} ({error})"
        ) from error

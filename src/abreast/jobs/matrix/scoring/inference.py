"""What SciPy and statsmodels say about lists of numbers: intervals, paired tests, corrections, correlations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

FEWEST: Final = 6
"""Pairs that a test needs: with five, no result of a two-sided signed-rank test is below 0.05."""

LEVEL: Final = 0.95
TRACE: Final = 0.1
"""Correlations below are too weak to matter."""
_TRIED: Final = 13


class NeedsReport(ImportError):
    """The packages that statistics and reports stand on are not installed: the sentence says how to get them."""


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean over inputs, each input's repeats averaged first, and the interval that holds it.

    `method` says how it

    was made, or why there is none."""  # noqa: D209 - one thought

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

    `effect` is the matched-pairs rank-biserial

    correlation, from -1 (every pair went down) to 1 (every pair went up)."""  # noqa: D209 - one thought

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
        """Whether chance alone is an unlikely reason, after correction, at the level of 0.05."""
        return self.adjusted is not None and self.adjusted < 1 - LEVEL


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile and its distribution-free interval.

    No bound where the numbers are too few to have one.
    """

    share: float
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Correlation:
    """Spearman's rank correlation; nothing where it has no meaning."""

    n: int
    rho: float | None
    p: float | None

    @property
    def clear(self) -> bool:
        """Whether it is neither chance nor a trace, which thousands of numbers make certain too."""
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
    """How the second differs from the first, pair by pair, not yet corrected for other tests.

    McNemar's exact test where all is 0 or 1, otherwise Wilcoxon's signed ranks with Pratt's
    treatment of zeros. The interval of the mean difference is Student's t.
    """
    differences = [_clean(new - old) for old, new in zip(before, after, strict=True)]
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
    """The same, each with its `p` corrected for all the tests among them."""
    adjusted = corrected([one.p for one in found])
    return [replace(one, adjusted=value) for one, value in zip(found, adjusted, strict=True)]


def corrected(values: Sequence[float | None]) -> list[float | None]:
    """Each p by Holm's step-down method, for as many tests as there were."""
    tested = [value for value in values if value is not None]
    adjusted = iter(
        _need("statsmodels.stats.multitest").multipletests(tested, method="holm")[1]
        if tested
        else ()
    )
    return [None if value is None else float(next(adjusted)) for value in values]


def quantiles(values: Sequence[float], shares: Sequence[float]) -> tuple[Quantile, ...]:
    """Quantiles of at least one number, with 95% intervals from the ranks alone."""
    numpy, stats = _need("numpy"), _need("scipy.stats")
    found = []
    for share in shares:
        value = float(numpy.quantile(values, share))
        bounds = stats.quantile_test(values, q=value, p=share).confidence_interval(
            confidence_level=LEVEL
        )
        low, high = (_finite(bound) for bound in bounds)
        found.append(Quantile(share, value, low, high))
    return tuple(found)


def correlation(first: Sequence[float], second: Sequence[float]) -> Correlation:
    """Whether the second grows with the first, by ranks."""
    count = len(first)
    if count < FEWEST or len(set(first)) == 1 or len(set(second)) == 1:
        return Correlation(count, None, None)
    found = _need("scipy.stats").spearmanr(first, second)
    return Correlation(count, float(found.statistic), float(found.pvalue))


def _clean(difference: float) -> float:
    """0.1 + 0.2 is 0.3: what only rounding made is no difference, and no rank of its own."""
    return round(difference, 12) + 0.0


def _finite(bound: float) -> float | None:
    return float(bound) if math.isfinite(bound) else None


def _wilson(successes: float, count: int) -> tuple[float, float]:
    proportion = _need("statsmodels.stats.proportion")
    low, high = proportion.proportion_confint(successes, count, alpha=1 - LEVEL, method="wilson")
    return max(float(low), 0.0), min(float(high), 1.0)


def _student(values: Sequence[float]) -> tuple[float, float]:
    """Of at least two values that differ."""
    bounds = (
        _need("scipy.stats").ttest_1samp(values, 0.0).confidence_interval(confidence_level=LEVEL)
    )
    return float(bounds.low), float(bounds.high)


def _wilcoxon(differences: Sequence[float]) -> float:
    """Every sign is tried while so few pairs differ, ties or not.

    What SciPy does by itself takes a second a test.
    """
    stats = _need("scipy.stats")
    ranks = stats.rankdata(
        [abs(value) for value in differences]
    )  # Pratt: zeros have ranks, and then no say
    signed = [
        math.copysign(rank, value) for rank, value in zip(ranks, differences, strict=True) if value
    ]
    if len(signed) > _TRIED:
        return float(stats.wilcoxon(differences, zero_method="pratt").pvalue)
    if len(signed) == 1:
        return 1.0
    add = _need("numpy").sum
    found = stats.permutation_test(
        (signed,), add, permutation_type="samples", vectorized=True, n_resamples=2 ** len(signed)
    )
    return float(found.pvalue)


def _mcnemar(differences: Sequence[float]) -> float:
    up, down = (sum(value == way for value in differences) for way in (1, -1))
    tables = _need("statsmodels.stats.contingency_tables")
    return min(1.0, float(tables.mcnemar([[0, up], [down, 0]], exact=True).pvalue))


def _rank_biserial(differences: Sequence[float]) -> float:
    """Kerby's simple difference: the ranks' share that went up, less the share that went down.

    Zeros have no rank.
    """
    moved = [value for value in differences if value]
    if not moved:
        return 0.0
    ranks = [float(rank) for rank in _need("scipy.stats").rankdata([abs(value) for value in moved])]
    signed = math.fsum(math.copysign(rank, value) for rank, value in zip(ranks, moved, strict=True))
    return signed / math.fsum(ranks)


def _need(name: str) -> Any:  # noqa: ANN401 - neither package has types
    from importlib import import_module

    try:
        module: ModuleType = import_module(name)
    except ImportError as error:
        raise NeedsReport(
            f"statistics need SciPy and statsmodels: install 'abreast[report]' ({error})"
        ) from error
    return module

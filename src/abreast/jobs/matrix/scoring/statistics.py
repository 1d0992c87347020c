"""Statistics over the rows of a matrix: means with intervals, comparisons, the Pareto front.

Nothing depends on the order of the rows, and no control is an arm. By intention-to-treat, a cell
that failed and a score that could not be given count as 0; valid-only leaves them out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from abreast.jobs.matrix.report.accounts import costs
from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring.arms import (
    Arm,
    Reading,
    block_means,
    by_arm,
    grouped,
    intended,
    is_unknown,
    mean,
    plain,
    score_names,
    valid,
)
from abreast.jobs.matrix.scoring.inference import MeanEstimate, Paired, estimate, holm, paired


@dataclass(frozen=True, slots=True)
class Summary:
    """One score of one arm, read both ways."""

    arm: Arm
    score: str
    intended: MeanEstimate
    valid: MeanEstimate


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """How far `second` is above `first` in a score, input by input, read both ways."""

    score: str
    first: Arm
    second: Arm
    intended: Paired
    valid: Paired


@dataclass(frozen=True, slots=True)
class Offer:
    """What an arm costs per cell and what it scores.

    It is on the front if no other is as good for less, or better for no more.
    """

    arm: Arm
    price: float
    unit: Literal["USD", "tokens"]
    mean: float
    front: bool


@dataclass(frozen=True, slots=True)
class Control:
    """The mean score of a control: a check of the scores, not of a model."""

    strategy: str
    score: str
    n: int
    mean: float | None


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Each score of each arm that has it; an arm all of whose cells failed has them all, as 0.

    An arm whose cells were done, but none of which could be scored, has no mean, because that is no
    result about the model.
    """
    return [
        Summary(
            arm,
            score,
            estimate([] if is_unknown(cells, score) else _blocks(cells, score, intended)),
            estimate(_blocks(cells, score, valid)),
        )
        for score, arm, cells in _scored(rows)
    ]


def comparisons(rows: Sequence[Row]) -> list[ArmComparison]:
    """Compare each pair of arms in each score that both have.

    Repeats are averaged per input, then inputs are paired; Holm's correction is made for all pairs
    of a score. The second of a pair is the one with the higher mean; the largest differences come
    first.
    """
    by_score: dict[str, list[tuple[Arm, list[Row]]]] = defaultdict(list)
    for score, arm, cells in _scored(rows):
        if not is_unknown(cells, score):
            by_score[score].append((arm, cells))
    found = []
    for score, scored in by_score.items():
        read = [
            {
                arm: block_means((row.input, reading(row, score)) for row in cells)
                for arm, cells in scored
            }
            for reading in (intended, valid)
        ]
        ranked = sorted(read[0], key=lambda arm: (mean(read[0][arm].values()), arm))
        pairs = list(combinations(ranked, 2))
        tests = [holm([_paired(means[one], means[two]) for one, two in pairs]) for means in read]
        family = [
            ArmComparison(score, *pair, *both) for pair, *both in zip(pairs, *tests, strict=True)
        ]
        found += sorted(
            family, key=lambda one: (-abs(one.intended.mean or 0), one.first, one.second)
        )
    return found


def pareto(rows: Sequence[Row], found: Sequence[Summary], score: str) -> list[Offer]:
    """Arms whose price is known, cheapest first, with cost per cell and intention-to-treat mean.

    If nothing costs money, or no cost is known, the price of an arm is its tokens.
    """
    held = costs(rows)
    paid = any(cost.per_cell for cost in held)
    prices = {cost.arm: cost.per_cell if paid else cost.tokens for cost in held}
    means = {one.arm: one.intended.mean for one in found if one.score == score}
    known = [
        (arm, own, high)
        for arm, high in means.items()
        if high is not None and (own := prices[arm]) is not None
    ]
    offers = [
        Offer(
            arm,
            own,
            "USD" if paid else "tokens",
            high,
            not any(p <= own and h >= high and (p, h) != (own, high) for _, p, h in known),
        )
        for arm, own, high in known
    ]
    return sorted(offers, key=lambda offer: (offer.price, -offer.mean, offer.arm))


def controls(rows: Sequence[Row]) -> list[Control]:
    """The scores of each control."""
    held = [row for row in rows if row.control]
    found = []
    for strategy in sorted({row.strategy for row in held}):
        cells = [row for row in held if row.strategy == strategy]
        for score in score_names(cells):
            values = sorted(value for row in cells if (value := valid(row, score)) is not None)
            found.append(Control(strategy, score, len(values), mean(values) if values else None))
    return found


def _scored(rows: Sequence[Row]) -> Iterator[tuple[str, Arm, list[Row]]]:
    """Which arm has which score: one that some of its rows have or failed to get.

    An arm whose rows were never scored has all scores.
    """
    names = score_names(plain(rows))
    own = {arm: score_names(cells) for arm, cells in by_arm(rows).items()}
    for score in names:
        for arm, cells in by_arm(rows).items():
            if score in own[arm] or not own[arm]:
                yield score, arm, cells


def _blocks(cells: Iterable[Row], score: str, reading: Reading) -> list[list[float]]:
    ordered = sorted(cells, key=lambda row: (row.input, row.repeat, row.cell))
    values = ((row.input, reading(row, score)) for row in ordered)
    return [found for _, found in grouped((name, one) for name, one in values if one is not None)]


def _paired(first: dict[str, float], second: dict[str, float]) -> Paired:
    common = sorted(first.keys() & second.keys())
    return paired([first[given] for given in common], [second[given] for given in common])

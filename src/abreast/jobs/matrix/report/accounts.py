"""Failures, latencies, costs and balance of the cells of a matrix."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from abreast.jobs.matrix.report.wording import p_value
from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring.arms import Arm, arms, by_arm, finished, grouped, plain
from abreast.jobs.matrix.scoring.inference import (
    LEVEL,
    Correlation,
    Quantile,
    corrected,
    correlation,
    quantiles,
)

SHARES: Final = (0.5, 0.9, 0.99)
UNNAMED: Final = "no type given"


@dataclass(frozen=True, slots=True)
class Failure:
    """How often cells of an arm failed with one type of error, and the message of one of them."""

    arm: Arm
    error_type: str
    count: int
    cells: int
    """All cells of the arm."""
    example: str


@dataclass(frozen=True, slots=True)
class Latency:
    """Service times of a model's finished cells, in seconds."""

    model: str
    n: int
    quantiles: tuple[Quantile, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Whether a lane's service times grew with the calls in flight."""

    lane: str
    found: Correlation
    queued: bool
    """Whether they grew: part of them is then the provider's queue."""
    sentence: str


@dataclass(frozen=True, slots=True)
class ArmCost:
    """The cost of an arm's cells, including failed ones."""

    arm: Arm
    cells: int
    priced: int
    usd: float | None
    per_cell: float | None
    """Over the cells whose price is known."""
    tokens: float
    """Per cell, in and out."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals over the rows; controls are counted separately."""

    cells: int
    done: int
    failed: int
    controls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    unpriced: int
    judge_tokens: int
    """Input and output tokens of the calls to judges; no other number here includes them."""
    judge_usd: float | None
    """The cost of judges; None if the price of some judge is not known."""
    estimated: float
    """The share of cells whose usage is an estimate."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Cells per arm and input: the least, the most, and how many pairs have fewer than the most."""

    arms: int
    inputs: int
    least: int
    most: int
    short: int

    @property
    def even(self) -> bool:
        """Whether arms and inputs differ by one repeat at most."""
        return self.most - self.least <= 1


def failures(rows: Sequence[Row]) -> list[Failure]:
    """Each type of error of each arm, the most frequent first within its arm."""
    found = []
    for arm, cells in by_arm(rows).items():
        failed = sorted((row for row in cells if row.state == "failed"), key=lambda row: row.cell)
        kinds = Counter(row.error_type or UNNAMED for row in failed)
        example = {row.error_type or UNNAMED: row.error or "" for row in reversed(failed)}
        ranked = sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))
        found += [Failure(arm, kind, count, len(cells), example[kind]) for kind, count in ranked]
    return found


def score_failures(rows: Sequence[Row]) -> list[tuple[Arm, str, int]]:
    """How often a score of an arm's finished cells, or of a control's, could not be given."""
    found = Counter(
        (Arm(row.model, row.strategy), name) for row in rows for name in row.score_errors
    )
    return [(*key, count) for key, count in sorted(found.items())]


def latencies(rows: Sequence[Row]) -> list[Latency]:
    """Median, 90th and 99th percentile of each model's service times, of cells that were done."""
    return [
        Latency(model, len(times), quantiles(times, SHARES))
        for model, times in grouped((row.model, row.service_s) for row in finished(rows))
    ]


def loads(rows: Sequence[Row]) -> list[Load]:
    """Each lane's service times of done cells, against the calls in flight when each was sent.

    A resumed cell all of whose calls were recorded before is left out, because the number of calls
    in flight then is not known. p is corrected by Holm for all lanes.
    """
    lanes = grouped(
        (row.lane, (float(row.in_flight), row.service_s)) for row in finished(rows) if row.in_flight
    )
    tests = [correlation(*zip(*sorted(pairs), strict=True)) for _, pairs in lanes]
    tests = [
        replace(one, p=p) for one, p in zip(tests, corrected([one.p for one in tests]), strict=True)
    ]
    return [
        Load(lane, one, one.clear and (one.rho or 0) > 0, _load_sentence(lane, one))
        for (lane, _), one in zip(lanes, tests, strict=True)
    ]


def costs(rows: Sequence[Row]) -> list[ArmCost]:
    """The cost of each arm."""
    found = []
    for arm, cells in by_arm(rows).items():
        prices = [row.usd for row in cells if row.usd is not None]
        total = math.fsum(prices) if prices else None
        tokens = sum(row.input_tokens + row.output_tokens for row in cells) / len(cells)
        each = None if total is None else total / len(prices)
        found.append(ArmCost(arm, len(cells), len(prices), total, each, tokens))
    return found


def totals(rows: Sequence[Row]) -> Totals:
    """Add up all rows."""
    cells = plain(rows)
    prices = [row.usd for row in cells if row.usd is not None]
    judged = [row.judge_usd for row in rows]
    done = sum(row.state == "done" for row in cells)
    return Totals(
        cells=len(cells),
        done=done,
        failed=len(cells) - done,
        controls=len(rows) - len(cells),
        input_tokens=sum(row.input_tokens for row in cells),
        output_tokens=sum(row.output_tokens for row in cells),
        usd=math.fsum(prices) if prices else None,
        unpriced=len(cells) - len(prices),
        judge_tokens=sum(row.judge_input_tokens + row.judge_output_tokens for row in rows),
        judge_usd=None if None in judged else math.fsum(one for one in judged if one is not None),
        estimated=sum(row.estimated for row in cells) / len(cells) if cells else 0.0,
    )


def balance(rows: Sequence[Row]) -> Balance:
    """How evenly the cells are spread over arms and inputs."""
    cells = plain(rows)
    counts = Counter((row.model, row.strategy, row.input) for row in cells)
    inputs = {row.input for row in cells}
    filled = [counts[*arm, given] for arm in arms(cells) for given in inputs]
    most = max(filled, default=0)
    return Balance(
        len(arms(cells)),
        len(inputs),
        min(filled, default=0),
        most,
        sum(count < most for count in filled),
    )


def _load_sentence(lane: str, found: Correlation) -> str:
    if found.rho is None or found.p is None:
        return (
            f"{lane}: cannot be tested, as there are too few cells "
            "or all were sent at the same load."
        )
    test = f"(Spearman's rho {found.rho:+.2f}, p {p_value(found.p)}, {found.n:,} cells)"
    if not found.clear:
        verb = "hardly depended" if found.p < 1 - LEVEL else "did not depend"
        return (
            f"{lane}: service times {verb} on the calls in flight {test}: "
            "they are the provider's own."
        )
    if found.rho < 0:
        return (
            f"{lane}: calls sent at a higher load were faster {test}: "
            "something besides the load changed."
        )
    return (
        f"{lane}: service times grew with the calls in flight {test}: "
        "part of them is the provider's queue."
    )

"""Compares two runs of a matrix, cell by cell, and tests which changes are more than chance."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring.arms import Arm, block_means, intended, mean, plain, score_names
from abreast.jobs.matrix.scoring.inference import Paired, holm, paired

Pair: TypeAlias = tuple[Row, Row]


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A score of an arm in both runs, by intention-to-treat, over the inputs that both have."""

    arm: Arm
    score: str
    before: float
    after: float
    change: Paired


@dataclass(frozen=True, slots=True)
class ArmChange:
    """The other changes of an arm's cells that both runs have."""

    arm: Arm
    cells: int
    mended: int
    """Cells that failed before and are done now."""
    broken: int
    """Cells that were done before and failed now."""
    outputs: int
    """Cells that are done in both, with different outputs."""
    usd: float | None
    """The increase in cost, over the cells with a price in both; `None` if there are none."""
    service: Paired
    """Service time in seconds, over the inputs that were done in both."""


@dataclass(frozen=True, slots=True)
class RunChanges:
    """What changed from one run to another.

    Scores and service times are two families of tests, each corrected separately.
    """

    both: int
    only_before: int
    only_after: int
    scores: tuple[ScoreChange, ...]
    arms: tuple[ArmChange, ...]

    @property
    def clear(self) -> tuple[ScoreChange, ...]:
        """The changes of scores for which chance is an unlikely reason."""
        return tuple(one for one in self.scores if one.change.clear)


def compare(rows_a: Sequence[Row], rows_b: Sequence[Row]) -> RunChanges:
    """What changed from run A to run B, with cells paired by model, strategy, input and repeat.

    Controls are left out. A score that only one of the runs has is not compared.
    """
    before, after = _by_key(rows_a), _by_key(rows_b)
    pairs: dict[Arm, list[Pair]] = {}
    for key in sorted(before.keys() & after.keys()):
        pairs.setdefault(Arm(*key[:2]), []).append((before[key], after[key]))
    shared = sorted(set(score_names(before.values())) & set(score_names(after.values())))
    scores = [
        _score_change(arm, score, arm_pairs) for score in shared for arm, arm_pairs in pairs.items()
    ]
    services = [
        paired(*_sides(filter(_both_done, arm_pairs), lambda pair: [one.service_s for one in pair]))
        for arm_pairs in pairs.values()
    ]
    both = sum(map(len, pairs.values()))
    return RunChanges(
        both=both,
        only_before=len(before) - both,
        only_after=len(after) - both,
        scores=tuple(
            replace(one, change=change)
            for one, change in zip(scores, holm([one.change for one in scores]), strict=True)
        ),
        arms=tuple(
            _arm_change(*pair, service)
            for pair, service in zip(pairs.items(), holm(services), strict=True)
        ),
    )


def _by_key(rows: Iterable[Row]) -> dict[tuple[str, str, str, int], Row]:
    return {(row.model, row.strategy, row.input, row.repeat): row for row in plain(rows)}


def _score_change(arm: Arm, score: str, arm_pairs: Sequence[Pair]) -> ScoreChange:
    old, new = _sides(arm_pairs, lambda pair: [intended(row, score) for row in pair])
    return ScoreChange(arm, score, mean(old), mean(new), paired(old, new))


def _both_done(pair: Pair) -> bool:
    return all(row.state == "done" for row in pair)


def _sides(
    arm_pairs: Iterable[Pair], read: Callable[[Pair], Sequence[float | None]]
) -> tuple[list[float], list[float]]:
    """A value before and after for each input, with its repeats averaged first."""
    values = [(pair[0].input, read(pair)) for pair in arm_pairs]
    before, after = (block_means((given, both[side]) for given, both in values) for side in (0, 1))
    return list(before.values()), list(after.values())


def _arm_change(arm: Arm, arm_pairs: Sequence[Pair], service: Paired) -> ArmChange:
    states = [(old.state, new.state) for old, new in arm_pairs]
    priced = [
        new.usd - old.usd for old, new in arm_pairs if old.usd is not None and new.usd is not None
    ]
    return ArmChange(
        arm=arm,
        cells=len(arm_pairs),
        mended=states.count(("failed", "done")),
        broken=states.count(("done", "failed")),
        outputs=sum(_both_done(pair) and pair[0].output != pair[1].output for pair in arm_pairs),
        usd=math.fsum(priced) if priced else None,
        service=service,
    )

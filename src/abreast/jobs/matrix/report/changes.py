"""Two runs of a matrix side by side: what changed, cell by cell, and what is more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from abreast.jobs.matrix.rows import Row
from abreast.jobs.matrix.scoring.arms import Arm, block_means, intended, mean, plain, score_names
from abreast.jobs.matrix.scoring.inference import Paired, holm, paired

Key: TypeAlias = tuple[str, str, str, int]
Pair: TypeAlias = tuple[Row, Row]


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """A score of an arm in both runs, read as intended to treat, over the inputs that both have."""

    arm: Arm
    score: str
    before: float
    after: float
    change: Paired


@dataclass(frozen=True, slots=True)
class ArmChange:
    """What else changed between an arm's cells that both runs have."""

    arm: Arm
    cells: int
    mended: int
    """Failed before, done now."""
    broken: int
    """Done before, failed now."""
    outputs: int
    """Done in both, with another output."""
    usd: float | None
    """Dearer by so much, over the cells priced in both; `None` if none is."""
    service: Paired
    """Service time in seconds, over the inputs that were done in both."""


@dataclass(frozen=True, slots=True)
class RunChanges:
    """What changed from one run to another.

    Both families of tests, scores and service times, are corrected apart.
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
    """What changed from run A to run B: cells are paired by model, strategy, input and repeat.

    Controls stay out.

    A score that only one of the runs has is not compared.
    """
    before, after = _keyed(rows_a), _keyed(rows_b)
    pairs: dict[Arm, list[Pair]] = {}
    for key in sorted(before.keys() & after.keys()):
        pairs.setdefault(Arm(*key[:2]), []).append((before[key], after[key]))
    shared = sorted(set(score_names(before.values())) & set(score_names(after.values())))
    scores = [_score_change(arm, score, held) for score in shared for arm, held in pairs.items()]
    services = [_service_change(held) for held in pairs.values()]
    both = sum(map(len, pairs.values()))
    return RunChanges(
        both=both,
        only_before=len(before) - both,
        only_after=len(after) - both,
        scores=tuple(
            ScoreChange(one.arm, one.score, one.before, one.after, change)
            for one, change in zip(scores, holm([one.change for one in scores]), strict=True)
        ),
        arms=tuple(
            _arm_change(*pair, service)
            for pair, service in zip(pairs.items(), holm(services), strict=True)
        ),
    )


def _keyed(rows: Iterable[Row]) -> dict[Key, Row]:
    return {(row.model, row.strategy, row.input, row.repeat): row for row in plain(rows)}


def _score_change(arm: Arm, score: str, held: Sequence[Pair]) -> ScoreChange:
    old, new = _sides(held, lambda pair: [intended(row, score) for row in pair])
    return ScoreChange(arm, score, mean(old), mean(new), paired(old, new))


def _service_change(held: Sequence[Pair]) -> Paired:
    return paired(
        *_sides(
            [pair for pair in held if _both_done(pair)],
            lambda pair: [row.service_s for row in pair],
        )
    )


def _both_done(pair: Pair) -> bool:
    return all(row.state == "done" for row in pair)


def _sides(
    held: Sequence[Pair], read: Callable[[Pair], Sequence[float | None]]
) -> tuple[list[float], list[float]]:
    """A value before and after, for each input, repeats averaged first."""
    values = [(pair[0].input, read(pair)) for pair in held]
    before, after = (block_means((given, both[side]) for given, both in values) for side in (0, 1))
    return list(before.values()), list(after.values())


def _arm_change(arm: Arm, held: Sequence[Pair], service: Paired) -> ArmChange:
    states = [(old.state, new.state) for old, new in held]
    priced = [new.usd - old.usd for old, new in held if old.usd is not None and new.usd is not None]
    return ArmChange(
        arm=arm,
        cells=len(held),
        mended=states.count(("failed", "done")),
        broken=states.count(("done", "failed")),
        outputs=sum(_both_done(pair) and pair[0].output != pair[1].output for pair in held),
        usd=math.fsum(priced) if priced else None,
        service=service,
    )

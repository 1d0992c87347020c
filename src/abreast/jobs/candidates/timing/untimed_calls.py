"""Compares the calls of the tests that are not timed, so that none of them is slower unnoticed.

A pass runs the tests once and records how long each call takes, by the child's own clock. Original
and candidate have their passes in turns, and the quickest of each call counts. This is too coarse
to accept anything, and accepts nothing: a call that looks slower is timed like the chosen ones, and
the verdict is that of all of them together. If there are more such calls than can be timed, or if
the rest together takes so much longer that nothing is left of the gain, the candidate stays
`undecided`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from abreast.jobs.candidates.behaviour.verdict import join_names
from abreast.jobs.candidates.timing.timed_calls import TimedCall, TimedCalls, in_words

PASSES: Final = 3  # of either side
_SLOWER_RATIO: Final = 1.15  # a call that takes this many times as long looks slower
_PASS_NOISE_SECONDS: Final = 50e-6  # by which a single call differs from pass to pass
_MAX_SUSPECTS: Final = 12  # calls that look slower and are timed
_SUSPECTS_SECONDS: Final = 5.0  # for the suspects of a candidate; the first may take any time


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of the tests: the seconds of each call, by name."""

    seconds: Mapping[str, float]
    complete: bool = True
    """Whether it has all calls."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Read a child's answer. Raises `ValueError` for anything else."""
        try:
            seconds = {str(name): max(0.0, float(took)) for name, took, *_ in answer["calls"]}
            return cls(seconds, not answer.get("uncounted"))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"no pass over the tests: {error!r}") from None


@dataclass(frozen=True, slots=True)
class UntimedComparison:
    """The result of the passes for all calls except the timed ones."""

    suspects: tuple[TimedCall, ...]
    """Calls that look slower, the most seconds lost first; `seconds` are the original's."""
    lost: Mapping[str, float]
    """By suspect: the seconds that the candidate seems to take longer."""
    missing: tuple[str, ...]
    """Calls of the original that the candidate's passes don't have."""
    original: tuple[float, float]
    """Seconds of all untimed calls except the suspects: the least and the most of a pass."""
    candidate: tuple[float, float]
    complete: bool

    def worth_timing(self) -> tuple[TimedCall, ...]:
        """The suspects to time: the worst in any case, and others within the limits."""
        found: list[TimedCall] = []
        took = 0.0
        for one in self.suspects:
            seconds = one.seconds + self.lost[one.name]
            if not found or (len(found) < _MAX_SUSPECTS and took + seconds <= _SUSPECTS_SECONDS):
                found.append(one)
                took += seconds
        return tuple(found)


def compare_passes(
    original: Sequence[Pass], candidate: Sequence[Pass], timed: Sequence[str]
) -> UntimedComparison:
    """Compare the times of both sides for all calls except the `timed` ones."""
    known = set(timed)
    ours, theirs = _quickest(original, known), _quickest(candidate, known)
    lost = {
        name: theirs[name] - took
        for name, took in ours.items()
        if name in theirs and theirs[name] > _SLOWER_RATIO * took + _PASS_NOISE_SECONDS
    }
    suspects = sorted(lost, key=lambda name: (-lost[name], name))
    rest = ours.keys() & theirs.keys() - lost.keys()
    return UntimedComparison(
        tuple(TimedCall(name, ours[name], copyable=False) for name in suspects),
        lost,
        tuple(sorted(ours.keys() - theirs.keys())),
        _extremes(original, rest),
        _extremes(candidate, rest),
        all(one.complete for one in (*original, *candidate)),
    )


def _quickest(passes: Sequence[Pass], known: set[str]) -> dict[str, float]:
    """By call that is in every pass: its quickest time."""
    names = set.intersection(*(set(one.seconds) for one in passes)) - known
    return {name: min(one.seconds[name] for one in passes) for name in names}


def _extremes(passes: Sequence[Pass], names: set[str]) -> tuple[float, float]:
    sums = [sum(one.seconds[name] for name in names) for one in passes]
    return min(sums), max(sums)


def doubt(found: UntimedComparison, inputs: TimedCalls, low: float) -> str:
    """Say why a candidate that is faster for the timed `inputs` may not be faster on the whole.

    It is faster by at least `low` for those. Empty if it is faster on the whole. Pessimistic: it
    compares the original's quickest pass with the candidate's slowest.
    """
    timed = {one.name for one in inputs.chosen}
    if slower := [one.name for one in found.suspects if one.name not in timed]:
        seem = "seems" if len(slower) == 1 else "seem"
        return f"{join_names(slower)} {seem} to take longer, and could not be timed"
    if found.missing:
        missing = join_names(found.missing)
        return f"the tests did not make the call {missing} each time, so it could not be compared"
    if not found.complete:
        return "the tests make more calls than can be compared"
    before, after = inputs.seconds + found.original[0], inputs.seconds / low + found.candidate[1]
    if after >= before:
        took = f"{in_words(found.candidate[1])} instead of {in_words(found.original[0])}"
        return (
            f"the calls that were not timed take up to {took} together, "
            "which leaves nothing of the gain"
        )
    return ""

"""Whether a candidate is faster: paired, interleaved, against this machine's own noise, with a bound on false alarms.

The plan. A block runs three arms: the original (A), the candidate (B), and the original once more
as the control (C). Each block draws an order and runs it there and back (A B C C B A: ABBA for
three arms), so that no arm is always first. Where runs are short beside the start of interpreters,
it goes there and back again, up to four times; every lap begins on another CPU, for all arms alike,
since on a shared machine one may be slower than another for a while. Each run is a fresh process,
and so are the interpreters that a block's processes come from: where things happen to lie in memory
makes one faster than another by a percent or so, for as long as it lives. What a block says is the
log-ratio of the quickest runs, A to B, and A to C: whatever else the machine does can only make a
run slower.

The statistics. Location is the mean with a fifth of the blocks trimmed at either end, since a
machine has bursts of other work. Its standard error is bootstrapped over stretches of neighbouring
blocks, since they resemble each other; the interval is that error times a quantile of Student's t.
It is written by hand, not SciPy's: a percentile interval can't reach the 0.03% tail that is needed
here from a dozen blocks, and the standard library has all the rest. It is seeded: the same times
give the same interval.

The decision. The noise floor is the largest ratio that the interval of A to C still allows, where
the truth is 1. Faster: the lower bound of A to B passes max(threshold, noise floor). Slower: the
same the other way round. Looks are taken after 6 blocks, 8, 11, and so on up to a fixed number; the
permitted share of false "faster" (0.2%) is divided among them. The same: all that the ratio may be,
by ordinary confidence (97.5% on either side), is within the threshold, and the control's is within
5%. Who misses a gain of a percent or two by that has lost little, and four times as many blocks
would be needed to be as sure as of a gain. At the end also what lies within the noise floor, if
that is under 5%; and slower is what else has its whole interval below 1. Otherwise undecided. A
candidate of which every run takes many times as long as every other run is slower at once.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, pstdev
from typing import Literal, TypeAlias

from abreast.core.seeds import derive_seed

Which: TypeAlias = Literal["original", "candidate", "control"]
Speed: TypeAlias = Literal["faster", "slower", "same", "undecided"]
Times: TypeAlias = dict[Which, list[tuple[float, ...]]]
"""Of each arm, by block, the seconds of its runs."""

ARMS: tuple[Which, ...] = ("original", "candidate", "control")
_ORDERS: tuple[tuple[int, int, int], ...] = (
    (0, 1, 2),
    (0, 2, 1),
    (1, 0, 2),
    (1, 2, 0),
    (2, 0, 1),
    (2, 1, 0),
)
_TRIM = 0.2
_MUCH_SLOWER = 8.0  # times as long in all runs of the first block, and it is over
_TWICE = 2.0  # after further blocks


@dataclass(frozen=True, slots=True)
class TimedTurn:
    """One run to make: which arm, in which block, with the seed of the block's inputs."""

    which: Which
    block: int
    seed: int
    lap: int = 0
    """There is 0, back is 1, and so on."""


RunOnce: TypeAlias = Callable[[TimedTurn], Awaitable[float]]
"""Runs one turn in a fresh process.

Returns the seconds, by the parent's timer. The control is the original.
"""


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """How much is measured. A candidate must be faster by `threshold` at least to be worth a change.

    What differs by less than `alike` may be called the same at the end, if the machine can't tell
    it better.
    """

    threshold: float = 0.02
    alike: float = 0.05
    first: int = 6
    most: int = 112
    growth: float = 1.4
    laps: int = 2
    false_faster: float = 0.002
    sure_same: float = 0.975
    resamples: int = 200

    def __post_init__(self) -> None:
        if not (4 <= self.first <= self.most):  # noqa: PLR2004 - fewer have no spread to speak of
            raise ValueError("a plan has at least 4 blocks, and at most as many as it says")
        if self.laps < 1 or (self.laps % 2 and self.laps > 1):
            raise ValueError(
                "a block goes there and back: its laps are an even number, or 1 for long runs"
            )
        if not (
            self.threshold >= 0
            and 0 < self.false_faster < 1
            and self.growth > 1
            and self.resamples >= 50
        ):
            raise ValueError("a plan whose numbers make no sense")

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many blocks a decision may be made."""
        found = [self.first]
        while found[-1] < self.most:
            found.append(min(self.most, max(found[-1] + 1, round(found[-1] * self.growth))))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of times, original to other, with the bounds it lies in: 2 is twice as fast."""

    ratio: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """How far from 1 it may be, in either direction, as a share."""
        return max(self.high, 1 / self.low) - 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """The verdict, the ratio with its interval, and the machine's noise.

    `times` has each arm's, by block.
    """

    verdict: Speed
    candidate: Interval
    control: Interval
    blocks: int
    times: dict[Which, tuple[tuple[float, ...], ...]]

    @property
    def noise_floor(self) -> float:
        """The speed-up that this machine's noise alone might show, as a share."""
        return self.control.spread


async def measure(
    run_once: RunOnce, *, plan: MeasurePlan | None = None, seed: int = 0
) -> Measurement:
    """Run blocks, one run at a time, until the plan says that it is decided, or at its end.

    Whatever `run_once` raises goes on. Raises `ValueError` if it returns no time.
    """
    plan = plan or MeasurePlan()
    times: Times = {which: [] for which in ARMS}
    for look in plan.looks:
        while len(times["original"]) < look:
            block = len(times["original"])
            taken: dict[Which, list[float]] = {which: [] for which in ARMS}
            for turn in turns_of(block, seed, plan.laps):
                taken[turn.which].append(_checked(await run_once(turn)))
            for which in ARMS:
                times[which].append(tuple(taken[which]))
            if is_hopeless(times):
                return _slower(times)
        measurement = judge_times(times, plan, seed)
        if measurement.verdict != "undecided":
            return measurement
    return measurement


def turns_of(block: int, seed: int, laps: int = 2) -> list[TimedTurn]:
    """The runs of one block: an order of the arms that the seed draws, there and back, and so on."""
    inner = derive_seed(seed, f"block/{block}")
    there = _ORDERS[inner % len(_ORDERS)]
    return [
        TimedTurn(ARMS[at], block, inner, lap)
        for lap in range(laps)
        for at in (there if lap % 2 == 0 else there[::-1])
    ]


def _checked(seconds: float) -> float:
    if not 0 < seconds < math.inf:
        raise ValueError(f"a run took {seconds} seconds, which is no time")
    return seconds


def is_hopeless(times: Times) -> bool:
    """Whether every run of the candidate is so much slower than every other run that more of them tell nothing new.

    By this nothing is accepted, so it needs no bound on false alarms; it spares a candidate that is
    many times slower from taking many times as long to be measured.
    """
    others = max(
        second for which in ("original", "control") for block in times[which] for second in block
    )
    quickest = min(second for block in times["candidate"] for second in block)
    blocks, runs = len(times["candidate"]), sum(map(len, times["candidate"]))
    return runs > 1 and quickest > (_MUCH_SLOWER if blocks == 1 else _TWICE) * others


def _slower(times: Times) -> Measurement:
    """With the extremes of what was seen in the place of bounds: there are too few blocks for an interval."""

    def seen(which: Which) -> Interval:
        logs = _log_ratios(times["original"], times[which])
        return Interval(math.exp(fmean(logs)), math.exp(min(logs)), math.exp(max(logs)))

    kept = {which: tuple(all_) for which, all_ in times.items()}
    return Measurement("slower", seen("candidate"), seen("control"), len(times["original"]), kept)


def judge_times(times: Times, plan: MeasurePlan, seed: int = 0) -> Measurement:
    """What the times of so many blocks say.

    Pure: the same times, plan and seed give the same verdict.
    """
    blocks = len(times["original"])
    # One-sided, and the share that is permitted is divided among the looks.
    confidence = 1 - plan.false_faster / len(plan.looks)
    logs = {which: _log_ratios(times["original"], times[which]) for which in ARMS[1:]}

    def bounds(which: Which, confidence: float) -> Interval:
        return interval(logs[which], confidence, plan.resamples, derive_seed(seed, which))

    candidate, control = bounds("candidate", confidence), bounds("control", confidence)
    likely = [bounds(which, plan.sure_same).spread for which in ARMS[1:]]
    verdict = _verdict((candidate, control), (likely[0], likely[1]), plan, last=blocks >= plan.most)
    return Measurement(
        verdict, candidate, control, blocks, {which: tuple(all_) for which, all_ in times.items()}
    )


def _verdict(
    sure: tuple[Interval, Interval], likely: tuple[float, float], plan: MeasurePlan, *, last: bool
) -> Speed:
    candidate, control = sure
    bar = 1 + max(plan.threshold, control.spread)
    if candidate.low > bar:
        return "faster"
    if candidate.high < 1 / bar:
        return "slower"
    # A loud machine may not call everything the same.
    if likely[0] <= plan.threshold and likely[1] <= plan.alike:
        return "same"
    if last and candidate.spread <= min(control.spread, plan.alike):
        return "same"
    # `slower` accepts nothing, so at the end it needs no more than an interval without a gain in
    # it.
    return "slower" if last and candidate.high < 1 else "undecided"


def _log_ratios(
    ours: Sequence[tuple[float, ...]], theirs: Sequence[tuple[float, ...]]
) -> list[float]:
    return [math.log(min(our) / min(their)) for our, their in zip(ours, theirs, strict=True)]


# --- statistics


def interval(logs: Sequence[float], confidence: float, resamples: int, seed: int) -> Interval:
    """The trimmed mean of log-ratios, and bounds that the truth is beyond, on either side, with 1 - `confidence`."""
    n = len(logs)
    cut = max(1, int(n * _TRIM))
    ordered = sorted(logs)
    kept = ordered[cut : n - cut]
    low, high = kept[0], kept[-1]
    # Tukey and McLaughlin: the error of a trimmed mean is that of the winsorised one, over the
    # share that is kept.
    error = (
        _bootstrapped([min(max(one, low), high) for one in logs], resamples, seed) * n / len(kept)
    )
    centre = fmean(kept)
    width = student_t(confidence, len(kept) - 1) * error
    return Interval(math.exp(centre), math.exp(centre - width), math.exp(centre + width))


def _bootstrapped(values: Sequence[float], resamples: int, seed: int) -> float:
    """The standard error of the mean: of means of stretches of neighbours, drawn with replacement, in a circle."""
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
    # Whole stretches are a little more than n values; and a bootstrap has only (n - length) / n of
    # the variance.
    spread: float = pstdev(means)
    return spread * math.sqrt(size / max(1, n - length))


@cache
def student_t(confidence: float, freedom: int) -> float:
    """The quantile of Student's t, for a confidence above a half: by halving, as its share within is a finite sum."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < 2 * confidence - 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _within(middle, freedom) < 2 * confidence - 1 else (low, middle)
        )
    return high


def _within(t: float, freedom: int) -> float:
    """How likely such a value lies between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term, terms = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for at in range(2 if odd else 1, freedom, 2):
        terms += term
        term *= square * at / (at + 1)
    return 2 / math.pi * (angle + math.sin(angle) * terms) if odd else math.sin(angle) * terms

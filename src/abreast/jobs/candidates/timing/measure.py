"""Decides whether a candidate is faster, from interleaved runs and the machine's own noise.

The plan. A block runs three arms: the original (A), the candidate (B), and the original once more
as the control (C). Each block draws an order and runs it forward and backward (A B C C B A: ABBA
for three arms), so that no arm is always first. Where runs are short compared with the start of
interpreters, it runs forward and backward again, up to four times. Every lap begins on another CPU,
the same for all arms, since on a shared machine one CPU may be slower than another for a while.
Each run is a fresh process, and the interpreters from which a block's processes are forked are
fresh too: memory layout makes one interpreter faster than another by a percent or so for its whole
life. The result of a block is the log-ratio of the quickest runs, A to B and A to C: other load on
the machine can only make a run slower.

The statistics. Location is the mean with a fifth of the blocks trimmed at either end, since a
machine has bursts of other work. Its standard error is bootstrapped over stretches of neighbouring
blocks, since they are correlated; the interval is that error times a quantile of Student's t. It is
written here instead of using SciPy: a percentile interval can't reach the 0.03% tail that is needed
here from a dozen blocks, and the standard library has all the rest. It is seeded: the same times
give the same interval.

The decision. The noise floor is the largest ratio that the interval of A to C still allows, where
the truth is 1. Faster: the lower bound of A to B passes max(threshold, noise floor). Slower: the
same in the other direction. Looks are taken after 6 blocks, 8, 11, and so on up to a fixed number;
the permitted share of false "faster" (0.2%) is divided among them. The same: the interval of the
ratio by ordinary confidence (97.5% on either side) is within the threshold, and the control's is
within 5%. This may miss a gain of a percent or two, which is a small loss; to be as sure as for
"faster" would need four times as many blocks. Futility: once the interval's upper bound is below 1,
the candidate is slower whatever the noise, and once it is below the threshold and the ratio within
5% of 1, the same: it can't become faster any more. At the last look, a ratio within the noise floor
is also the same, if the floor is under 5%. Otherwise undecided. A candidate of which every run
takes many times as long as every other run is slower at once.
"""

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
Times: TypeAlias = dict[Which, list[tuple[float, ...]]]  # by arm and block: seconds of each run

ARMS: tuple[Which, ...] = ("original", "candidate", "control")
_ORDERS: tuple[tuple[int, int, int], ...] = (
    (0, 1, 2),
    (0, 2, 1),
    (1, 0, 2),
    (1, 2, 0),
    (2, 0, 1),
    (2, 1, 0),
)
_TRIMMED_SHARE = 0.2  # of the blocks, at either end
# A candidate is slower at once if all its runs take this many times as long as all others.
_HOPELESS_RATIO_FIRST_BLOCK = 8.0
_HOPELESS_RATIO = 2.0  # after further blocks
# With fewer, so many are trimmed that the interval may be a single point.
MIN_BLOCKS = 6
_MIN_RESAMPLES = 50


@dataclass(frozen=True, slots=True)
class TimedTurn:
    """One run to make: which arm, in which block, with the seed of the block.

    Attributes:
        lap: Even laps run the arms forward, odd laps backward.
    """

    which: Which
    block: int
    seed: int
    lap: int = 0


# Runs one turn in a fresh process and returns the seconds by the parent's timer. The control runs
# the original.
RunOnce: TypeAlias = Callable[[TimedTurn], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """How much is measured.

    A candidate must be faster by at least `threshold`. At the last look, a difference below `alike`
    may be called the same if the noise of the machine is larger.
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
        if not (MIN_BLOCKS <= self.first <= self.most):
            raise ValueError("a plan has at least 6 blocks, and at most as many as it says")
        if self.laps < 1 or (self.laps % 2 and self.laps > 1):
            raise ValueError(
                "a block goes there and back: its laps are an even number, or 1 for long runs"
            )
        if not (
            self.threshold >= 0
            and 0 < self.false_faster < 1
            and self.growth > 1
            and self.resamples >= _MIN_RESAMPLES
        ):
            raise ValueError("a plan whose numbers make no sense")

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of blocks after which a decision may be made."""
        found = [self.first]
        while found[-1] < self.most:
            found.append(min(self.most, max(found[-1] + 1, round(found[-1] * self.growth))))
        return tuple(found)


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


@dataclass(frozen=True, slots=True)
class Measurement:
    """The verdict, the ratio with its interval, the noise, and the times by arm and block."""

    verdict: Speed
    candidate: Interval
    control: Interval
    blocks: int
    times: dict[Which, tuple[tuple[float, ...], ...]]

    @property
    def noise_floor(self) -> float:
        """The speed-up that the noise of this machine alone could produce, as a share."""
        return self.control.spread


async def measure(
    run_once: RunOnce, *, plan: MeasurePlan | None = None, seed: int = 0
) -> Measurement:
    """Run blocks, one run at a time, until the verdict is decided or the plan is at its end.

    Passes on what `run_once` raises. Raises `ValueError` if it returns no valid time.
    """
    plan = plan or MeasurePlan()
    times: Times = {which: [] for which in ARMS}
    for look in plan.looks:
        while len(times["original"]) < look:
            block = len(times["original"])
            taken: dict[Which, list[float]] = {which: [] for which in ARMS}
            for turn in turns_of(block, seed, plan.laps):
                seconds = await run_once(turn)
                if not 0 < seconds < math.inf:
                    raise ValueError(f"a run took {seconds} seconds, which is no time")
                taken[turn.which].append(seconds)
            for which in ARMS:
                times[which].append(tuple(taken[which]))
            if is_hopeless(times):
                return _slower_measurement(times)
        measurement = judge_times(times, plan, seed)
        if measurement.verdict != "undecided":
            return measurement
    return measurement


def turns_of(block: int, seed: int, laps: int = 2) -> list[TimedTurn]:
    """Return the runs of one block: an order drawn by the seed, forward, backward, and so on."""
    inner = derive_seed(seed, f"block/{block}")
    order = _ORDERS[inner % len(_ORDERS)]
    return [
        TimedTurn(ARMS[at], block, inner, lap)
        for lap in range(laps)
        for at in (order if lap % 2 == 0 else order[::-1])
    ]


def is_hopeless(times: Times) -> bool:
    """Whether every run of the candidate is many times slower than every other run.

    Nothing is accepted by this, so it needs no bound on false alarms. It avoids measuring for many
    times as long where the candidate is many times slower.
    """
    others = max(
        second for which in ("original", "control") for block in times[which] for second in block
    )
    quickest = min(second for block in times["candidate"] for second in block)
    blocks, runs = len(times["candidate"]), sum(map(len, times["candidate"]))
    return (
        runs > 1
        and quickest > (_HOPELESS_RATIO_FIRST_BLOCK if blocks == 1 else _HOPELESS_RATIO) * others
    )


def _slower_measurement(times: Times) -> Measurement:
    """Return `slower` with the extremes as bounds: there are too few blocks for an interval."""

    def seen(which: Which) -> Interval:
        logs = _log_ratios(times["original"], times[which])
        return Interval(math.exp(fmean(logs)), math.exp(min(logs)), math.exp(max(logs)))

    kept = {which: tuple(all_) for which, all_ in times.items()}
    return Measurement("slower", seen("candidate"), seen("control"), len(times["original"]), kept)


def judge_times(times: Times, plan: MeasurePlan, seed: int = 0) -> Measurement:
    """Decide by the times so far. Pure: the same times, plan and seed give the same verdict."""
    # One-sided; the permitted share of false alarms is divided among the looks.
    confidence = 1 - plan.false_faster / len(plan.looks)
    logs = {which: _log_ratios(times["original"], times[which]) for which in ARMS[1:]}

    def bounds(which: Which, confidence: float) -> Interval:
        return interval(logs[which], confidence, plan.resamples, derive_seed(seed, which))

    candidate, control = bounds("candidate", confidence), bounds("control", confidence)
    likely = [bounds(which, plan.sure_same).spread for which in ARMS[1:]]
    blocks = len(times["original"])
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
    # `slower` and `same` accept nothing, so neither has to pass the noise floor.
    if candidate.high < 1:
        return "slower"
    if candidate.high < 1 + plan.threshold and candidate.ratio >= 1 / (1 + plan.alike):
        return "same"
    # The control must be close to 1 too, else a noisy machine would call everything the same.
    if (likely[0] <= plan.threshold and likely[1] <= plan.alike) or (
        last and candidate.spread <= min(control.spread, plan.alike)
    ):
        return "same"
    return "undecided"


def _log_ratios(
    ours: Sequence[tuple[float, ...]], theirs: Sequence[tuple[float, ...]]
) -> list[float]:
    return [math.log(min(our) / min(their)) for our, their in zip(ours, theirs, strict=True)]


# --- statistics


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

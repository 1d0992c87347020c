"""Decides whether a candidate is faster, from interleaved runs and the machine's own noise.

The plan. A block runs three arms: the original (A), the candidate (B), and the original once more
as the control (C). It draws an order and runs it forward and backward (A B C C B A: ABBA for three
arms), so that no arm is always first. Where runs are short compared with the start of interpreters,
it draws again and runs forward and backward more often. Every lap begins on another CPU, the same
for all arms, since on a shared machine one CPU may be slower than another for a while. Each run is
a fresh process, and the interpreters from which a block's processes are forked are fresh too:
memory layout makes one interpreter faster than another by a percent or so for its whole life. A
shared CPU may run at half its speed for tenths of a second at a time, so only runs that follow each
other are compared: the result of a block is the median of its laps' log-ratios, A to B and A to C.
Of two laps, the quicker run of each arm counts instead: other load can only make a run slower, and
the median of two does not withstand it. `intervals` has the statistics.

The decision. The noise floor is the largest ratio that the interval of A to C still allows, where
the truth is 1. Faster: the lower bound of A to B passes max(threshold, noise floor). Looks are
taken after 6 blocks, 8, 11, and so on up to a fixed number; the permitted share of false "faster"
(0.2%) is divided among them and the look at laps. The same: the ratio is within 5% of 1, and its
upper bound is within the threshold: by the confidence of a look, or by ordinary confidence (97.5%)
if the control's interval by that is within 5%. This may miss a gain of a percent or two, which is a
small loss; to be as sure as for "faster" would need four times as many blocks. Slower: the upper
bound is below 1, and the ratio is further from it. At the last look, a ratio within the noise floor
is also the same, if the floor is under 5%. Otherwise undecided.

What is plain is decided earlier. A candidate that is more than twice as fast as both others in
every lap is faster after any two laps, from 8 on: chance would give that to an equal candidate in
less than one of 4,000 cases, as an equal one is first in a third of the laps, whatever the noise
(`laps`). One that is the slowest of the three in 8 of 8 laps, 10 of 12, 14 of 20 or 16 of 24, and
slower by more than 5%, is slower, from the end of the second block on; chance would give that in
less than one of 1,000 cases, and nothing is accepted by it. A candidate of which every run takes
many times as long as every other run is slower at once.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median
from typing import Literal, TypeAlias

from abreast.core.seeds import derive_seed
from abreast.jobs.candidates.timing.intervals import Interval, interval
from abreast.jobs.candidates.timing.laps import Lap, judge_laps

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
# A candidate is slower at once if all its runs take this many times as long as all others.
_HOPELESS_RATIO_FIRST_BLOCK = 8.0
_HOPELESS_RATIO = 2.0  # after further blocks
# With fewer, so many are trimmed that the interval may be a single point.
MIN_BLOCKS = 6
_LAPS_OF_A_MEDIAN = 3  # the median of fewer is their mean, which one slow run changes
_BLOCKS_OF_SLOWER = 2  # by laps: processes of one block may be slower by their layout of memory
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

    @property
    def false_faster_share(self) -> float:
        """The permitted share of false "faster" at one look, or by all laps."""
        return self.false_faster / (len(self.looks) + 1)


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
            turns = turns_of(block, seed, plan.laps)
            for number, turn in enumerate(turns, 1):
                seconds = await run_once(turn)
                if not 0 < seconds < math.inf:
                    raise ValueError(f"a run took {seconds} seconds, which is no time")
                taken[turn.which].append(seconds)
                if number % (2 * len(ARMS)) == 0 or number == len(turns):  # there and back
                    so_far = {which: [*times[which], tuple(taken[which])] for which in ARMS}
                    if is_hopeless(so_far):
                        return _slower_measurement(so_far)
                    plain = _judge_laps(so_far, plan, ended=number == len(turns))
                    if plain is not None:
                        return plain
            times = so_far
        measurement = judge_times(times, plan, seed)
        if measurement.verdict != "undecided":
            return measurement
    return measurement


def turns_of(block: int, seed: int, laps: int = 2) -> list[TimedTurn]:
    """Return the runs of one block: by an order that the seed draws, forward and backward.

    Every two laps have an order of their own.
    """
    inner = derive_seed(seed, f"block/{block}")
    orders = [
        _ORDERS[derive_seed(inner, f"laps/{pair}") % len(_ORDERS)] for pair in range(-(-laps // 2))
    ]
    return [
        TimedTurn(ARMS[at], block, inner, lap)
        for lap in range(laps)
        for at in (orders[lap // 2] if lap % 2 == 0 else orders[lap // 2][::-1])
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


def _judge_laps(times: Times, plan: MeasurePlan, *, ended: bool) -> Measurement | None:
    """Return the verdict if all laps so far make it plain, else None; `ended` is the last block."""
    found = judge_laps(
        [Lap(*lap) for lap in zip(*(chain(*times[which]) for which in ARMS), strict=True)],
        threshold=plan.threshold,
        alike=plan.alike,
        false_faster=plan.false_faster_share,
    )
    blocks = len(times["original"])
    if found is None or (found.speed == "slower" and not (ended and blocks >= _BLOCKS_OF_SLOWER)):
        return None
    return Measurement(found.speed, found.candidate, found.control, blocks, _kept(times))


def _kept(times: Times) -> dict[Which, tuple[tuple[float, ...], ...]]:
    return {which: tuple(all_) for which, all_ in times.items()}


def _slower_measurement(times: Times) -> Measurement:
    """Return `slower` with the extremes as bounds: there are too few blocks for an interval."""

    def seen(which: Which) -> Interval:
        logs = _log_ratios(times["original"], times[which])
        return Interval(math.exp(fmean(logs)), math.exp(min(logs)), math.exp(max(logs)))

    blocks = len(times["original"])
    return Measurement("slower", seen("candidate"), seen("control"), blocks, _kept(times))


def judge_times(times: Times, plan: MeasurePlan, seed: int = 0) -> Measurement:
    """Decide by the times so far. Pure: the same times, plan and seed give the same verdict."""
    # One-sided; the permitted share of false alarms is divided among the looks.
    confidence = 1 - plan.false_faster_share
    logs = {which: _log_ratios(times["original"], times[which]) for which in ARMS[1:]}

    def bounds(which: Which, confidence: float) -> Interval:
        return interval(logs[which], confidence, plan.resamples, derive_seed(seed, which))

    candidate, control = bounds("candidate", confidence), bounds("control", confidence)
    likely = (bounds("candidate", plan.sure_same), bounds("control", plan.sure_same))
    blocks = len(times["original"])
    verdict = _verdict((candidate, control), likely, plan, last=blocks >= plan.most)
    return Measurement(verdict, candidate, control, blocks, _kept(times))


def _verdict(
    sure: tuple[Interval, Interval],
    likely: tuple[Interval, Interval],
    plan: MeasurePlan,
    *,
    last: bool,
) -> Speed:
    candidate, control = sure
    bar = 1 + max(plan.threshold, control.spread)
    if candidate.low > bar:
        return "faster"
    # `slower` and `same` accept nothing, so neither has to pass the noise floor. The control must
    # be close to 1 too, else a noisy machine would call everything the same.
    no_faster = candidate.high < 1 + plan.threshold or (
        likely[0].high <= 1 + plan.threshold and likely[1].spread <= plan.alike
    )
    if no_faster and candidate.ratio >= 1 / (1 + plan.alike):
        return "same"
    if candidate.high < 1:
        return "slower"
    if last and candidate.spread <= min(control.spread, plan.alike):
        return "same"
    return "undecided"


def _log_ratios(
    ours: Sequence[tuple[float, ...]], theirs: Sequence[tuple[float, ...]]
) -> list[float]:
    return [_log_ratio(our, their) for our, their in zip(ours, theirs, strict=True)]


def _log_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the log-ratio of one block, from the seconds of its laps."""
    if len(ours) < _LAPS_OF_A_MEDIAN:
        return math.log(min(ours) / min(theirs))
    return median(math.log(our / their) for our, their in zip(ours, theirs, strict=True))

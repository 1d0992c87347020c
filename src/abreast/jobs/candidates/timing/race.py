"""The interleaved measurement ("race") of the original, the candidate and a control.

The control is the original once more; it shows the machine's own noise. A turn makes every chosen
call in the process of one arm, and its time is the sum of theirs; `measure` decides the order of
turns and when there are enough. Timed processes are started anew for every block, since memory
layout affects their speed by a percent or so. They are used for several blocks where starting them
takes long, or where the candidate is so much faster or slower that a percent does not matter.

The result of every call is compared, so a candidate can't be fast by doing something else while it
is timed. Nor can it be fast by reporting the end of a call too early: all that happens around the
calls is timed too, and must not become longer by what was saved.
"""

import math
import os
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.seeds import derive_seed
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.rules import STRICT, Rules
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.laps import FIRST_BY_CHANCE, chance_of
from abreast.jobs.candidates.timing.measure import ARMS, MeasurePlan, TimedTurn
from abreast.jobs.candidates.timing.timed_calls import TimedCall, TimedCalls, in_words
from abreast.jobs.candidates.timing.timed_process import (
    LIFETIME_SECONDS,
    MIN_ANSWER_SECONDS,
    Made,
    ProcessPlace,
    TimedProcess,
    TimedProcesses,
    TimedProcessFailed,
    TimedProcessTimedOut,
)
from abreast.jobs.candidates.values.invocation import Invocation, RecordInvalid, decode, judge
from abreast.worktrees.slot import Slot

_MAX_GENERATION_BLOCKS: Final = 10
_LARGE_RATIO: Final = 1.3  # of medians, in either direction: layout of memory does not matter
_LARGE_RATIO_BLOCKS: Final = 4  # of a generation while the ratio is as large
_GENERATION_SECONDS: Final = 300.0  # for the blocks of a generation, unless one takes longer
_CANDIDATE_SLOWDOWN: Final = 10  # a candidate's process lives long enough for this factor
_MIN_FIRST_CALL_SAVING: Final = 1 / 4  # of a first call; a smaller saving can't be seen in it
_COUNT_REPEATS: Final = 3
_COUNTING_SLOWDOWN: Final = 2  # a call may take this many times as long while something is counted
_LONG_CALL_SECONDS: Final = 1.0  # the instructions of a longer call are counted once
# The share of those that save nothing on the whole and are believed, and of those that save all
# that they seem to and are refused.
_FALSE_TRUST: Final = 1e-4
_FALSE_DISTRUST: Final = 1e-4
_REGRESSION_RATIO: Final = 1.15  # an input that takes this many times as long is a regression


class OriginalTimedOut(TimedProcessFailed):
    """The original took much longer than before: nothing can be measured now."""


@dataclass(frozen=True, slots=True)
class RaceOptions:
    """How results are compared, how much is measured, and the seed of the order of turns.

    Attributes:
        block_start_seconds: Starting the processes may take this long per block. If it takes
            longer, a generation of processes is used for several blocks.
        counted_event: Of perf_event_open; by default a hardware event, instructions.
    """

    rules: Rules = STRICT
    plan: MeasurePlan = field(default_factory=MeasurePlan)
    seed: int = 0
    block_start_seconds: float = 2.0
    min_answer_seconds: float = MIN_ANSWER_SECONDS
    counted_event: tuple[int, int] = (0, 1)


@dataclass(slots=True)
class _Arm:
    """One arm: its slot, its process, and the times of its calls.

    By turn: `inside`, the seconds between each `go` and its `done`, summed, and `outside`, those
    around that, from the order to the last answer. By input: the seconds that count of each turn,
    and the quickest of its `first` calls.
    """

    slot: Slot
    process: TimedProcess | None = None
    inside: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    by_input: dict[int, list[float]] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)


class Race:
    """Runs the original, the candidate and the control turn by turn; `measure` calls it."""

    def __init__(
        self,
        processes: TimedProcesses,
        slots: tuple[Slot, Slot],
        target: Target,
        tests: Tests,
        inputs: TimedCalls,
        *,
        options: RaceOptions,
    ) -> None:
        """`slots` are the original's and the candidate's."""
        self._processes, self._options = processes, options
        self._target, self._tests, self._inputs = target, tests, inputs
        self.arms: dict[str, _Arm] = {which: _Arm(slots[which == "candidate"]) for which in ARMS}
        self._generation = 0
        self._block = -1  # the current one
        # The block before which the processes are started anew, and the same for a large ratio.
        self._generation_end = self._large_ratio_end = 0
        # By arm: the answers of its processes, which have the seconds of every call of the tests.
        self.answers: dict[str, list[dict[str, Any]]] = {which: [] for which in ARMS}
        self._seconds: dict[str, list[float]] = {which: [] for which in ARMS}  # of each turn
        self._expected: dict[int, Invocation] = {}
        self._known_digests: dict[int, list[str]] = {}
        # On a shared machine a CPU may be slower than another for a while, so all arms begin a lap
        # on one CPU and the next lap on the next.
        self._cpus: list[int | None] = (
            [*sorted(os.sched_getaffinity(0))] if hasattr(os, "sched_getaffinity") else [None]
        )

    async def run_once(self, turn: TimedTurn) -> float:
        """Make every chosen call in one arm's process, compare each, and return the seconds."""
        if turn.block != self._block:
            self._block = turn.block
            end = self._large_ratio_end if self._ratio_is_large() else self._generation_end
            if turn.block >= end:
                await self._start_generation(turn.block)
        arm, work = self.arms[turn.which], 0.0
        arm.inside.append(0.0)
        arm.outside.append(0.0)
        cpu = self._cpus[(turn.block + turn.lap) % len(self._cpus)]
        for number, one in enumerate(self._inputs.chosen):
            known = arm.by_input.get(number)
            if turn.lap and known and self._inputs.is_minor(one):
                work += known[-1]  # as in the first lap of this block
                continue
            seconds, made = await self._make_call(arm, turn.which, number, cpu)
            work += seconds
            arm.inside[-1] += sum(made.chunks)
            arm.outside[-1] += made.all - sum(made.chunks)
            arm.by_input.setdefault(number, []).append(seconds)
        self._seconds[turn.which].append(work)
        return work

    async def _start_generation(self, block: int) -> None:
        began = SYSTEM_CLOCK.now()
        await self._processes.end()
        wanted = tuple(one.name for one in self._inputs.chosen)
        seed = derive_seed(self._options.seed, f"generation/{self._generation}") % 4_000_000_000
        self._generation += 1
        turns = len(ARMS) * self._inputs.laps * self._inputs.turn  # seconds, of a block
        blocks = max(1, min(_MAX_GENERATION_BLOCKS, int(_GENERATION_SECONDS / turns)))
        alive = (
            2 * self._options.min_answer_seconds
            + blocks * self._inputs.laps * (2 + _CANDIDATE_SLOWDOWN) * self._inputs.turn
        )
        places = [
            ProcessPlace(
                self.arms[which].slot,
                self._target,
                self._tests,
                wanted,
                seed,
                max(LIFETIME_SECONDS, 2 * alive),
            )
            for which in ARMS
        ]
        for which, (process, answer) in zip(ARMS, await self._processes.start(places), strict=True):
            self.arms[which].process = process
            self.answers[which].append(answer)
        for number in range(len(wanted)):  # the original first: the others are compared with it
            if number not in self._expected:
                await self._make_call(self.arms["original"], "original", number)
        blocks_wanted = int((SYSTEM_CLOCK.now() - began) / self._options.block_start_seconds)
        self._generation_end = block + min(blocks, max(1, blocks_wanted))
        self._large_ratio_end = block + min(blocks, max(_LARGE_RATIO_BLOCKS, blocks_wanted))

    def _ratio_is_large(self) -> bool:
        """Whether the candidate is so far from the others that layout of memory can't matter."""
        if not all(self._seconds.values()):
            return False
        middle = {which: median(seconds) for which, seconds in self._seconds.items()}
        ratios = [middle[which] / middle["candidate"] for which in ("original", "control")]
        return min(ratios) > _LARGE_RATIO or max(ratios) < 1 / _LARGE_RATIO

    async def _make_call(
        self, arm: _Arm, which: str, number: int, cpu: int | None = None
    ) -> tuple[float, Made]:
        if arm.process is None:
            raise RuntimeError("the process of this arm is not started")
        one, known = self._inputs.chosen[number], self._known_digests.setdefault(number, [])
        chunks = [1, *([self._inputs.rounds] * self._inputs.chunks_of(one))]
        timeout = self._inputs.timeout_of(one, least=self._options.min_answer_seconds)
        try:
            made = await arm.process.make(number, chunks, timeout, known, cpu)
        except TimedProcessTimedOut:
            reason = f"{one.name} did not end within {timeout:.0f} s"
            if which == "candidate":
                raise TimedProcessTimedOut(
                    f"{reason}; the original takes {in_words(one.seconds)}"
                ) from None
            raise OriginalTimedOut(
                f"{reason} for the original: too much goes on here to measure it"
            ) from None
        if made.record is not None:
            self._judge(which, number, made.record)
            known.append(made.digest)
        first, *rest = made.chunks
        arm.first[number] = min(arm.first.get(number, math.inf), first)
        # Where a call is made twice a turn, a burst of other work may hit the second one.
        alike = [first] if self._inputs.rounds == 1 and len(rest) == 1 else []
        return min([*rest, *alike], default=first * self._inputs.rounds), made

    def _judge(self, which: str, number: int, record: bytes) -> None:
        try:
            invocations = decode(record)
        except RecordInvalid as error:
            raise TimedProcessFailed(
                f"what it did when it was timed can't be read: {error}"
            ) from None
        if which != "candidate" and invocations:
            self._expected.setdefault(number, invocations[0])
        expected = self._expected[number]
        for invocation in invocations:
            findings = judge([expected], [invocation], rules=self._options.rules)
            if findings and which == "candidate":
                raise TimedProcessFailed(
                    f"when it was timed, it behaved otherwise: {findings[0].verdict}"
                )
        if not invocations:
            raise TimedProcessFailed("when it was timed, it told nothing of what it did")

    # --- other quantities than time

    async def memory_ratio(self) -> float | None:
        """The largest memory of a call, candidate to original; None if it can't be measured."""
        most = dict.fromkeys(("original", "candidate"), 0)
        for which in most:
            for number, one in enumerate(self._inputs.chosen):
                answer = await self._ask(self.arms[which], number, one, {"do": "memory"})
                if answer is None:
                    return None
                most[which] = max(most[which], int(answer.get("peak", 0)))
        return most["candidate"] / most["original"] if most["original"] else None

    async def instruction_ratio(self) -> tuple[float | None, str]:
        """The instructions of all calls, candidate to original, or why they are not counted.

        The child counts them, so the figure is only shown and decides nothing.
        """
        counts = {"original": 0, "candidate": 0}
        for which in counts:
            for number, one in enumerate(self._inputs.chosen):
                found = await self._count_instructions(self.arms[which], number, one)
                if isinstance(found, str):
                    return None, found
                counts[which] += found
        return (
            (counts["candidate"] / counts["original"], "")
            if counts["original"]
            else (None, "nothing was counted")
        )

    async def _count_instructions(self, arm: _Arm, number: int, one: TimedCall) -> int | str:
        """Count one call: the least of a few counts, since other work only adds to it."""
        found: list[int] = []
        for _ in range(_COUNT_REPEATS if one.seconds <= _LONG_CALL_SECONDS else 1):
            answer = await self._ask(
                arm, number, one, {"do": "count", "event": self._options.counted_event}
            )
            if answer is None:
                return "it took too long"
            if not isinstance(answer.get("count"), int):
                return str(answer.get("uncounted", "it did not say"))
            found.append(answer["count"])
        return min(found)

    async def _ask(
        self, arm: _Arm, number: int, one: TimedCall, order: dict[str, object]
    ) -> dict[str, Any] | None:
        """Make one call for another purpose than its time.

        Returns None if it takes too long or if there is no process.
        """
        if arm.process is None:
            return None
        # Counting allocations makes a call several times slower.
        seconds = _COUNTING_SLOWDOWN * self._inputs.timeout_of(
            one, least=self._options.min_answer_seconds
        )
        try:
            return await arm.process.ask(number, order, seconds)
        except TimedProcessTimedOut:
            await self._processes.end()
            self._generation_end = self._large_ratio_end = 0
            for each in self.arms.values():
                each.process = None
            return None

    def first_calls(self) -> float | None:
        """Of the seconds saved when a call is repeated, the share that a first call saves.

        A first call in a new process also pays for memory that is touched for the first time, about
        the same on either side. The result is nan where that costs more than the call itself, or
        where little is saved: then nothing can be concluded. It is None where the saving is not
        much more than the difference between first calls of original and control, that is, where
        noise hides it.
        """
        # A call that is made once a turn is always a first one.
        repeated = [at for at, one in enumerate(self._inputs.chosen) if self._inputs.chunks_of(one)]
        first = {which: sum(self.arms[which].first[at] for at in repeated) for which in ARMS}
        # The quickest of both kinds: on a busy machine a median of one can't be compared with the
        # minimum of the other.
        later = {
            which: sum(min(self.arms[which].by_input[at]) for at in repeated) / self._inputs.rounds
            for which in ("original", "candidate")
        }
        saved = later["original"] - later["candidate"]
        noise = abs(first["control"] - first["original"])
        if (
            first["original"] > 2 * later["original"]
            or saved <= _MIN_FIRST_CALL_SAVING * first["original"]
        ):
            return math.nan
        return None if saved <= 3 * noise else (first["original"] - first["candidate"]) / saved

    def regressions(self) -> tuple[str, ...]:
        """Inputs for which the candidate takes longer, by medians."""
        original, candidate = self.arms["original"].by_input, self.arms["candidate"].by_input
        ratios = {
            one.name: median(candidate[number]) / median(original[number])
            for number, one in enumerate(self._inputs.chosen)
        }
        return tuple(
            f"{name} takes {ratio:.2f} times as long"
            for name, ratio in ratios.items()
            if ratio > _REGRESSION_RATIO
        )

    def works_elsewhere(self) -> bool | None:
        """Whether the saved work is done elsewhere: before the `go` or after the `done`.

        None if noise hides it. In each lap, every arm runs once, in an order that is drawn. If the
        candidate only moves its work, its whole lap, with all that is around the calls, takes as
        long as that of the original and of the control: it is the quickest of the three by chance,
        in at most a third of the laps, whatever the noise of the machine. If it moves nothing, what
        is around its calls takes as long as theirs, and is the slowest in at most a third. Either
        is concluded after so many laps, each by half of what seems to be saved, that chance would
        give in one of 10,000 cases.
        """
        original, candidate, control = (self.arms[which] for which in ARMS)
        saved = median(original.inside) - median(candidate.inside)
        if saved <= 0:
            return None
        around = list(zip(original.outside, candidate.outside, control.outside, strict=True))
        calls = list(zip(original.inside, candidate.inside, control.inside, strict=True))
        laps = [
            [sum(both) for both in zip(*lap, strict=True)]
            for lap in zip(around, calls, strict=True)
        ]
        first = sum(mine + saved / 2 < min(ours, other) for ours, mine, other in laps)
        last = sum(mine - saved / 2 > max(ours, other) for ours, mine, other in around)
        if chance_of(range(first, len(laps) + 1), len(laps), FIRST_BY_CHANCE) <= _FALSE_TRUST:
            return False
        moved = chance_of(range(last, len(laps) + 1), len(laps), FIRST_BY_CHANCE)
        return True if moved <= _FALSE_DISTRUST else None

"""The original, the candidate, and the original once more, by which the machine's own noise is known: turn by turn.

A turn has every chosen call made once at one of their stands, and is the sum of their times;
`measure` says which comes when, and when it is enough. Stands are started anew for every block,
since where things happen to lie in memory has its own speed; only where starting them takes long,
they are used for several.

What a call did is judged each time, so that nobody is quick by doing something else when it counts.
Nor by saying that it is done before it is: all that goes on around the calls is timed too, and must
be shorter by what was saved.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.seeds import derive_seed
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.rules import Rules
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.timing.measure import TimedTurn, Which
from abreast.jobs.candidates.timing.timed_calls import TimedCall, TimedCalls, in_words
from abreast.jobs.candidates.timing.timed_process import (
    PATIENCE,
    SECONDS_ALIVE,
    Made,
    ProcessPlace,
    TimedProcess,
    TimedProcessFailed,
    TimedProcessTimedOut,
)
from abreast.jobs.candidates.timing.timed_processes import TimedProcesses
from abreast.jobs.candidates.values.invocation import Invocation, RecordInvalid, decode, judge
from abreast.worktrees.slot import Slot

_WORTH: Final = (
    2.0  # s that a block may cost in starting stands; beyond that, they are used for several
)
_GENERATION: Final = 10  # blocks that a stand is used for, at most
_LIFE: Final = (
    300.0  # s that the blocks of one generation may take, if one block does not take longer
)
_SLOWEST: Final = 10  # times as long as the original: so long the stand of a candidate must live
_LITTLE: Final = 1 / 4  # of a first call: so much must be saved to be seen in it
_INSTRUCTIONS: Final = (0, 1)  # perf_event_open's: of the hardware, instructions
_COUNTS: Final = 3
_COUNTING: Final = 2  # times as long as a call may take
_LONG: Final = 1.0  # s; a call that takes longer is counted once
_SURE: Final = 4.0  # errors of a median
_WORSE: Final = 1.15  # an input that takes so many times as long is a regression
_ARMS: Final[tuple[Which, ...]] = ("original", "candidate", "control")


class BehavesOtherwise(TimedProcessFailed):
    """When it is timed, the candidate does something else than the original."""


class OriginalTimedOut(TimedProcessFailed):
    """The original itself took much longer than it did before: nothing can be measured now."""


@dataclass(slots=True)
class _Arm:
    """One side: where it stands, and what its calls took."""

    slot: Slot
    stand: TimedProcess | None = None
    work: list[float] = field(default_factory=list)
    """By turn: the calls that count."""
    inside: list[float] = field(default_factory=list)
    """By turn: between our words and theirs, all told."""
    outside: list[float] = field(default_factory=list)
    """By turn: all that went on around that, from the order to the last answer."""
    by_input: dict[int, list[float]] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    """By input: the quickest of its first calls."""


class Race:
    """The original, the candidate and the control, turn by turn: what `measure` calls."""

    def __init__(
        self,
        stands: TimedProcesses,
        slots: tuple[Slot, Slot],
        target: Target,
        tests: Tests,
        inputs: TimedCalls,
    ) -> None:
        """The original's slot, and the candidate's."""
        self._stands = stands
        self._target, self._tests, self._inputs = target, tests, inputs
        original, candidate = slots
        self.arms = {
            "original": _Arm(original),
            "candidate": _Arm(candidate),
            "control": _Arm(original),
        }
        self._generation = 0
        self._until = 0
        """The block before which stands are started anew."""
        self._records: dict[int, Invocation] = {}
        self._good: dict[int, list[str]] = {}
        # On a shared machine a CPU may be slower than another for a while: all arms begin on one,
        # and then on the next.
        self._cpus: list[int | None] = [None]
        if hasattr(os, "sched_getaffinity"):
            self._cpus = [*sorted(os.sched_getaffinity(0))]
        self.rules = Rules()
        self.seed = 0

    async def run_once(self, turn: TimedTurn) -> float:
        """One turn: every chosen call at one of the stands, each judged.

        The seconds of all of them.
        """
        if turn.block >= self._until:
            await self._renew(turn.block)
        arm = self.arms[turn.which]
        work = inside = outside = 0.0
        cpu = self._cpus[(turn.block + turn.lap) % len(self._cpus)]
        for number in range(len(self._inputs.chosen)):
            seconds, made = await self._made(arm, turn.which, number, cpu)
            work, inside, outside = (
                work + seconds,
                inside + sum(made.chunks),
                outside + made.all - sum(made.chunks),
            )
            arm.by_input.setdefault(number, []).append(seconds)
        arm.work.append(work)
        arm.inside.append(inside)
        arm.outside.append(outside)
        return work

    async def _renew(self, block: int) -> None:
        """Fresh interpreters, with one order of sets for all arms."""
        began = SYSTEM_CLOCK.now()
        await self._stands.end()
        wanted = tuple(one.name for one in self._inputs.chosen)
        hash_seed = derive_seed(self.seed, f"generation/{self._generation}") % 4_000_000_000
        self._generation += 1
        blocks = self._blocks()
        alive = 2 * PATIENCE + blocks * self._inputs.laps * (2 + _SLOWEST) * self._inputs.turn
        seconds = max(SECONDS_ALIVE, 2 * alive)
        places = [
            ProcessPlace(
                self.arms[which].slot, self._target, self._tests, wanted, hash_seed, seconds
            )
            for which in _ARMS
        ]
        for which, (stand, _) in zip(_ARMS, await self._stands.started(places), strict=True):
            self.arms[which].stand = stand
        for number in range(len(wanted)):  # the original first: the others are judged by it
            if number not in self._records:
                await self._made(self.arms["original"], "original", number)
        self._until = block + max(1, min(blocks, int((SYSTEM_CLOCK.now() - began) / _WORTH)))

    def _blocks(self) -> int:
        """How many blocks one generation may be used for."""
        return max(
            1, min(_GENERATION, int(_LIFE / (len(_ARMS) * self._inputs.laps * self._inputs.turn)))
        )

    async def _made(
        self, arm: _Arm, which: str, number: int, cpu: int | None = None
    ) -> tuple[float, Made]:
        """One input: the seconds that count, and all that was made."""
        if arm.stand is None:
            raise RuntimeError("nobody stands there")
        one, good = self._inputs.chosen[number], self._good.setdefault(number, [])
        chunks = [1, *([self._inputs.rounds] * self._inputs.chunks_of(one))]
        patience = self._inputs.patience(one, least=PATIENCE)
        try:
            made = await arm.stand.make(number, chunks, patience, good, cpu)
        except TimedProcessTimedOut:
            said = f"{one.name} did not end within {patience:.0f} s"
            if which == "candidate":
                raise TimedProcessTimedOut(
                    f"{said}; the original takes {in_words(one.seconds)}"
                ) from None
            raise OriginalTimedOut(
                f"{said} for the original: too much goes on here to measure it"
            ) from None
        if made.record is not None:
            self._judge(which, number, made.record)
            good.append(made.digest)
        first, *rest = made.chunks
        arm.first[number] = min(arm.first.get(number, math.inf), first)
        return min(rest, default=first * self._inputs.rounds), made

    def _judge(self, which: str, number: int, record: bytes) -> None:
        try:
            invocations = decode(record)
        except RecordInvalid as error:
            raise BehavesOtherwise(
                f"what it did when it was timed can't be read: {error}"
            ) from None
        if which != "candidate" and invocations:
            self._records.setdefault(number, invocations[0])
        expected = self._records[number]
        for invocation in invocations:
            findings = judge([expected], [invocation], rules=self.rules)
            if findings and which == "candidate":
                raise BehavesOtherwise(
                    f"when it was timed, it behaved otherwise: {findings[0].verdict}"
                )
        if not invocations:
            raise BehavesOtherwise("when it was timed, it told nothing of what it did")

    # --- beside the time ----------------------------------------------------------------------------------------------

    async def memory_ratio(self) -> float | None:
        """The most memory that a call took, candidate to original; None if it can't be had."""
        most = dict.fromkeys(("original", "candidate"), 0)
        for which in most:
            for number, one in enumerate(self._inputs.chosen):
                told = await self._asked(self.arms[which], number, one, {"do": "memory"})
                if told is None:
                    return None
                most[which] = max(most[which], int(told.get("peak", 0)))
        return most["candidate"] / most["original"] if most["original"] else None

    async def instruction_ratio(self) -> tuple[float | None, str]:
        """The machine's instructions in all calls, candidate to original.

        Or why they are not counted.

        The child counts them, so it is only shown, and decides nothing.
        """
        counts = {"original": 0, "candidate": 0}
        for which in counts:
            for number, one in enumerate(self._inputs.chosen):
                found = await self._counted(self.arms[which], number, one)
                if isinstance(found, str):
                    return None, found
                counts[which] += found
        return (
            (counts["candidate"] / counts["original"], "")
            if counts["original"]
            else (None, "nothing was counted")
        )

    async def _counted(self, arm: _Arm, number: int, one: TimedCall) -> int | str:
        """Of one call: the least of a few counts, as what is counted besides is never negative."""
        found: list[int] = []
        for _ in range(_COUNTS if one.seconds <= _LONG else 1):
            told = await self._asked(arm, number, one, {"do": "count", "event": _INSTRUCTIONS})
            if told is None:
                return "it took too long"
            count = told.get("count")
            if not isinstance(count, int):
                return str(told.get("uncounted", "it did not say"))
            found.append(count)
        return min(found)

    async def _asked(
        self, arm: _Arm, number: int, one: TimedCall, order: dict[str, object]
    ) -> dict[str, Any] | None:
        """One call made for another purpose than its time.

        None if it takes too long, or there is no process.
        """
        if arm.stand is None:
            return None
        try:
            # Counting allocations makes a call several times slower.
            return await arm.stand.ask(
                number, order, self._inputs.patience(one, least=PATIENCE) * _COUNTING
            )
        except TimedProcessTimedOut:
            await self._stands.end()
            self._until = 0
            for each in self.arms.values():
                each.stand = None
            return None

    def first_calls(self) -> float | None:
        """Of the seconds that are saved when a call is repeated, the share that a first call saves.

        A first call in a new process also pays for memory that is touched for the first time, about
        the same on either side. Where that is more than the call itself, nothing can be told, nor
        where little is saved: nan. None if it is not much more than the control's first calls
        differ by: if noise hides it.
        """
        # A call that is made once a turn is always a first one.
        repeated = [at for at, one in enumerate(self._inputs.chosen) if self._inputs.chunks_of(one)]
        first = {which: sum(self.arms[which].first[at] for at in repeated) for which in _ARMS}
        # The quickest of either kind: on a busy machine a median of the one says nothing beside the
        # least of the other
        later = {
            which: sum(min(self.arms[which].by_input[at]) for at in repeated) / self._inputs.rounds
            for which in ("original", "candidate")
        }
        saved = later["original"] - later["candidate"]
        noise = abs(first["control"] - first["original"])
        if first["original"] > 2 * later["original"] or saved <= _LITTLE * first["original"]:
            return math.nan
        return None if saved <= 3 * noise else (first["original"] - first["candidate"]) / saved

    def regressions(self) -> tuple[str, ...]:
        """Inputs for which the candidate takes longer, by medians."""
        found = []
        for number, one in enumerate(self._inputs.chosen):
            was, now = (
                median(self.arms[which].by_input[number]) for which in ("original", "candidate")
            )
            if now > _WORSE * was:
                found.append(f"{one.name} takes {now / was:.2f} times as long")
        return tuple(found)

    def works_elsewhere(self) -> bool | None:
        """Whether what is saved is only done elsewhere: before our word, or after the `done`.

        None if noise hides it.

        Both are by the wall, disturbed alike: what is saved between the words, and what is longer
        around them.
        """
        inside, outside = (
            {which: median(getattr(self.arms[which], word)) for which in _ARMS}
            for word in ("inside", "outside")
        )
        saved = inside["original"] - inside["candidate"]
        around = [
            one - outside[which]
            for which in ("original", "control")
            for one in self.arms[which].outside
        ]
        noise = _SURE * 1.4826 * median(map(abs, around)) / math.sqrt(len(around) / 2)
        moved = outside["candidate"] - outside["original"]
        return None if saved <= 0 or abs(moved - saved / 2) <= noise else moved > saved / 2

"""Which of the tests' calls are timed, and how often: the longest, and as many others as a short turn has room for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from abreast.jobs.candidates.timing.measure import MeasurePlan

MOST_INPUTS: Final = 6
_ROUND: Final = 0.06  # s; what a round over all inputs but a long one may take
_LEAST: Final = 0.001  # s; what a round should take, so that the way there and back is little of it
# at most, of each input in a turn; the quickest counts: what disturbs it can only make it slower
_CHUNKS: Final = 20
_TURN: Final = 0.03  # s; what these should take
_LONG: Final = 0.3  # s; a call that takes longer is made once a turn
_MOST_ROUNDS: Final = 200
_MOST_LAPS: Final = (
    8  # on a shared machine a CPU is slower for a few tenths of a second, and then quick again
)
# s; what the turns of a block may take if they are short: interpreters take about as long to start
_BLOCK: Final = 1.0
_LONG_TURN: Final = 1.0  # s; a block of longer turns runs each arm once
_BUDGET: Final = (
    300.0  # s of long turns; no more blocks are measured then than the first look needs
)
_ARMS: Final = 3
_NAMED: Final = 3  # inputs in a sentence
_LEFT: Final = 20  # names of inputs left out that are kept


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call of the target that is timed: the name of the invocation, and about how long the original takes."""

    name: str
    seconds: float
    copyable: bool


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """The calls that are chosen, of how many that differ, and how often each is repeated within a turn."""

    chosen: tuple[TimedCall, ...]
    of: int
    rounds: int
    left: tuple[TimedCall, ...] = ()
    """The longest of those that are not timed."""

    @property
    def seconds(self) -> float:
        """What the original takes for one round."""
        return sum(one.seconds for one in self.chosen)

    @property
    def chunks(self) -> int:
        """How often the rounds are done within a turn, after the first call.

        0 if all calls are long.
        """
        seconds = self.rounds * sum(one.seconds for one in self.chosen if one.seconds <= _LONG)
        return max(2, min(_CHUNKS, round(_TURN / seconds))) if seconds else 0

    def chunks_of(self, one: TimedCall) -> int:
        """The same for one input: a long call is made once a turn, and so is one that can't be copied."""
        return self.chunks if one.copyable and one.seconds <= _LONG else 0

    @property
    def turn(self) -> float:
        """Seconds that the original takes for a turn."""
        return max(
            1e-7, sum((1 + self.rounds * self.chunks_of(one)) * one.seconds for one in self.chosen)
        )

    @property
    def laps(self) -> int:
        """How often a block goes there or back: the shorter turns are beside the start of interpreters, the more."""
        if self.turn > _LONG_TURN:
            return 1
        return max(2, min(_MOST_LAPS, 2 * int(_BLOCK / (_ARMS * 2 * self.turn))))

    def fitted(self, plan: MeasurePlan) -> MeasurePlan:
        """The plan with as many laps and blocks as turns of this length allow: long calls have few repetitions."""
        blocks = int(_BUDGET / (_ARMS * self.laps * self.turn))
        return replace(plan, laps=self.laps, most=max(plan.first, min(plan.most, blocks)))

    def patience(self, one: TimedCall, *, least: float) -> float:
        """Seconds that a candidate may take for a chunk of this input: ten times the original's, or `least`."""
        return max(least, 10 * self.rounds * one.seconds)

    def beside(self, more: Sequence[TimedCall]) -> TimedCalls:
        """These inputs and some more; a round becomes longer by them."""
        names = {one.name for one in more}
        left = tuple(one for one in self.left if one.name not in names)
        return _inputs([*self.chosen, *more], self.of, left)

    @property
    def untimed(self) -> str:
        """Which inputs are not timed, in words; empty if all are."""
        count = self.of - len(self.chosen)
        if count <= 0:
            return ""
        named = ", ".join(f"{one.name} ({in_words(one.seconds)})" for one in self.left[:_NAMED])
        more = (
            f" and {count - min(_NAMED, len(self.left))} more"
            if named and count > min(_NAMED, len(self.left))
            else ""
        )
        return f"{len(self.chosen)} of {self.of} different inputs were timed" + (
            f", not {named}{more}" if named else ""
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about them."""
        found = [self.untimed] if self.untimed else []
        if self.rounds > 1:
            found.append(
                f"each input was called {self.rounds} times in a row, as one call is too short to be timed"
            )
        if not all(one.copyable for one in self.chosen):
            found.append("some inputs can't be copied, and were called once a turn")
        if long := [one.name for one in self.chosen if one.seconds > _LONG]:
            found.append(f"{', '.join(long)} takes long, and was called once a turn")
        return tuple(found)


def choose(calls: Sequence[Sequence[Any]]) -> TimedCalls:
    """Of the tests' calls, those that differ and take longest. ValueError if there is none.

    The longest is always among them; the others only as far as a round over them stays short. A
    call is a name, seconds, a digest of its arguments (empty: not known, so it differs from all
    others), and whether it can be copied.
    """
    different = {
        str(digest) or f"name {name}": TimedCall(str(name), float(seconds), bool(copyable))
        for name, seconds, digest, copyable in reversed(calls)
    }
    found = sorted(different.values(), key=lambda one: (-one.seconds, one.name))
    if not found:
        raise ValueError("no test calls the target")
    chosen = found[:1]
    # A long call has its own time; what fits into a short round is timed besides it.
    room = _ROUND - (chosen[0].seconds if chosen[0].seconds <= _ROUND else 0.0)
    for one in found[1:]:
        if len(chosen) < MOST_INPUTS and one.seconds <= room:
            chosen.append(one)
            room -= one.seconds
    kept = set(chosen)
    return _inputs(chosen, len(found), tuple(one for one in found if one not in kept)[:_LEFT])


def _inputs(chosen: Sequence[TimedCall], of: int, left: tuple[TimedCall, ...]) -> TimedCalls:
    rounds = min(_MOST_ROUNDS, math.ceil(_LEAST / max(1e-7, sum(one.seconds for one in chosen))))
    return TimedCalls(tuple(chosen), of, rounds, left)


def in_words(seconds: float) -> str:
    """A duration, with the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"

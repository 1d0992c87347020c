"""Chooses which calls of the tests are timed, and how often each is repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from abreast.jobs.candidates.timing.measure import ARMS, MeasurePlan

MOST_INPUTS: Final = 6
MAX_ROUND_SECONDS: Final = 0.03  # of a round over all inputs, except a long one
_MIN_ROUND_SECONDS: Final = 0.001  # of a round, so that communication is a small part of it
# Of each input in a turn. The quickest counts: other load can only make a chunk slower. There are
# few, so that all arms have their turns while the CPU is as fast: with 4 chunks and 12 laps instead
# of 12 and 4, blocks of a busy machine differed by 3 to 4% instead of 7%.
_MAX_CHUNKS: Final = 4
_CHUNKS_SECONDS: Final = 0.03  # that the chunks of an input should take together
_LONG_CALL_SECONDS: Final = 0.3  # a call that takes longer is made once a turn
# Of a round: a call that takes less is made in the first lap of a block alone. Most of what such a
# call costs is the fork that it is made in.
_MINOR_SHARE: Final = 0.01
_MOST_ROUNDS: Final = 200
_MOST_LAPS: Final = 12
# Of the turns of a block if they are short; interpreters take about as long to start.
_BLOCK_SECONDS: Final = 1.25
_LONG_TURN_SECONDS: Final = 1.0  # a block of longer turns runs each arm once
# Of all long turns; beyond that, no more blocks are measured than the first look needs.
_LONG_TURNS_SECONDS: Final = 300.0
_MAX_NAMES: Final = 3  # of inputs in a sentence
_MAX_LEFT: Final = 20  # untimed inputs whose names are stored


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call that is timed: the name of the invocation, and about how long the original takes."""

    name: str
    seconds: float
    copyable: bool


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """The chosen calls, the number of different ones, and the calls in a row in each chunk.

    Attributes:
        left: The longest of those that are not timed.
    """

    chosen: tuple[TimedCall, ...]
    of: int
    rounds: int
    left: tuple[TimedCall, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds that the original takes for one round."""
        return sum(one.seconds for one in self.chosen)

    @property
    def chunks(self) -> int:
        """How many chunks a turn has after the first call; 0 if all calls are long."""
        seconds = self.rounds * sum(
            one.seconds for one in self.chosen if one.seconds <= _LONG_CALL_SECONDS
        )
        return max(1, min(_MAX_CHUNKS, round(_CHUNKS_SECONDS / seconds))) if seconds else 0

    def chunks_of(self, one: TimedCall) -> int:
        """The chunks of one input; 0 if it is long or can't be copied: it is called once a turn."""
        return self.chunks if one.copyable and one.seconds <= _LONG_CALL_SECONDS else 0

    def is_minor(self, one: TimedCall) -> bool:
        """Whether it is so short a part of a round that one lap of a block is enough for it."""
        return one.seconds < _MINOR_SHARE * self.seconds

    @property
    def turn(self) -> float:
        """Seconds that the original takes for a turn."""
        return max(
            1e-7, sum((1 + self.rounds * self.chunks_of(one)) * one.seconds for one in self.chosen)
        )

    @property
    def laps(self) -> int:
        """How often a block runs the arms, forward or backward: more often if turns are short."""
        laps = max(2, min(_MOST_LAPS, 2 * int(_BLOCK_SECONDS / (len(ARMS) * 2 * self.turn))))
        return 1 if self.turn > _LONG_TURN_SECONDS else laps

    def fitted(self, plan: MeasurePlan) -> MeasurePlan:
        """Return the plan with as many laps and blocks as turns of this length allow."""
        blocks = int(_LONG_TURNS_SECONDS / (len(ARMS) * self.laps * self.turn))
        return replace(plan, laps=self.laps, most=max(plan.first, min(plan.most, blocks)))

    def timeout_of(self, one: TimedCall, *, least: float) -> float:
        """Seconds that a chunk of this input may take: ten times the original's, or `least`."""
        return max(least, 10 * self.rounds * one.seconds)

    def beside(self, more: Sequence[TimedCall]) -> TimedCalls:
        """Return these inputs and some more, with the repetitions adapted to the longer round."""
        names = {one.name for one in more}
        return _inputs(
            [*self.chosen, *more], self.of, [one for one in self.left if one.name not in names]
        )

    @property
    def untimed(self) -> str:
        """A sentence about the inputs that are not timed; empty if all are."""
        count = self.of - len(self.chosen)
        if count <= 0:
            return ""
        named = [f"{one.name} ({in_words(one.seconds)})" for one in self.left[:_MAX_NAMES]]
        more = f" and {count - len(named)} more" if count > len(named) else ""
        return f"{len(self.chosen)} of {self.of} different inputs were timed" + (
            f", not {', '.join(named)}{more}" if named else ""
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the report: what is not timed, repeated in a row, or called once a turn."""
        repeated = (
            f"each input was called {self.rounds} times in a row, "
            "as one call is too short to be timed"
        )
        once = "some inputs can't be copied, and were called once a turn"
        long = ", ".join(one.name for one in self.chosen if one.seconds > _LONG_CALL_SECONDS)
        found = (
            self.untimed,
            repeated if self.rounds > 1 else "",
            once if not all(one.copyable for one in self.chosen) else "",
            f"{long} takes long, and was called once a turn" if long else "",
        )
        return tuple(filter(None, found))


def choose(
    calls: Sequence[Sequence[Any]], *, round_seconds: float = MAX_ROUND_SECONDS
) -> TimedCalls:
    """Choose the longest of the different calls. Raises ValueError if there is none.

    The longest is always chosen; others only as long as a round over them takes no longer than
    `round_seconds`. A call is a name, seconds, a digest of its arguments (empty: not known, so it
    differs from all others), and whether it can be copied.
    """
    different = {
        str(digest) or f"name {name}": TimedCall(str(name), float(seconds), bool(copyable))
        for name, seconds, digest, copyable in reversed(calls)
    }
    found = sorted(different.values(), key=lambda one: (-one.seconds, one.name))
    if not found:
        raise ValueError("no test calls the target")
    chosen = found[:1]
    # The longest call does not use up the room if it is longer than a round.
    room = round_seconds - (chosen[0].seconds if chosen[0].seconds <= round_seconds else 0.0)
    for one in found[1:]:
        if len(chosen) < MOST_INPUTS and one.seconds <= room:
            chosen.append(one)
            room -= one.seconds
    return _inputs(chosen, len(found), [one for one in found if one not in chosen][:_MAX_LEFT])


def _inputs(chosen: Sequence[TimedCall], of: int, left: Sequence[TimedCall]) -> TimedCalls:
    rounds = min(
        _MOST_ROUNDS, math.ceil(_MIN_ROUND_SECONDS / max(1e-7, sum(one.seconds for one in chosen)))
    )
    return TimedCalls(tuple(chosen), of, rounds, tuple(left))


def in_words(seconds: float) -> str:
    """Format a duration in s, ms or us."""
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
    unit = next((unit for unit, size in units.items() if seconds >= size), "us")
    return f"{seconds / units[unit]:.3g} {unit}"

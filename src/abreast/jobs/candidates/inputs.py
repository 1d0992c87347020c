"""Which of the tests' calls are timed, and how often: as many that differ as a short turn has room for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MOST_INPUTS: Final = 6
_ROUND: Final = 0.06  # s; what a round over all inputs may take
_LEAST: Final = 0.001  # s; what a round should take, so that the way there and back is little of it
_CHUNKS: Final = 20  # at most, of each input in a turn; the quickest counts: what disturbs it can only make it slower
_TURN: Final = 0.03  # s; what these should take
_LONG: Final = 0.3  # s; of a round that is as good as it gets with its first call
_MOST_ROUNDS: Final = 200
_MOST_LAPS: Final = 8  # on a shared machine a CPU is slower for a few tenths of a second, and then quick again
_BLOCK: Final = 1.0  # s; what the turns of a block may take if they are short: interpreters take about as long to start
_ARMS: Final = 3


@dataclass(frozen=True, slots=True)
class Input:
    """A call of the target that is timed: the name of the invocation, and about how long the original takes."""

    name: str
    seconds: float
    copyable: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """The calls that are chosen, of how many that differ, and how often each is repeated within a turn."""

    chosen: tuple[Input, ...]
    of: int
    rounds: int

    @property
    def chunks(self) -> int:
        """How often that is done within a turn."""
        seconds = self.rounds * sum(one.seconds for one in self.chosen)
        return 0 if seconds > _LONG else max(2, min(_CHUNKS, round(_TURN / seconds)))

    @property
    def laps(self) -> int:
        """How often a block goes there or back: the shorter turns are beside the start of interpreters, the more."""
        seconds = (1 + self.rounds * self.chunks) * sum(one.seconds for one in self.chosen)
        return max(2, min(_MOST_LAPS, 2 * int(_BLOCK / (_ARMS * 2 * seconds))))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about them."""
        found = []
        if len(self.chosen) < self.of:
            found.append(f"{len(self.chosen)} of {self.of} different inputs were timed")
        if self.rounds > 1:
            found.append(f"each input was called {self.rounds} times in a row, as one call is too short to be timed")
        if not all(one.copyable for one in self.chosen):
            found.append("some inputs can't be copied, and were called once a turn")
        return tuple(found)


def choose(calls: Sequence[Sequence[Any]]) -> Inputs:
    """Of the tests' calls, those that differ and take longest, as far as a round stays short. ValueError if none."""
    different = {str(digest): Input(str(name), float(seconds), bool(copyable))
                 for name, seconds, digest, copyable in reversed(calls)}  # fmt: skip
    found = sorted(different.values(), key=lambda one: (-one.seconds, one.name))
    if not found:
        raise ValueError("no test calls the target")
    chosen: list[Input] = []
    for one in found:
        if len(chosen) < MOST_INPUTS and sum(other.seconds for other in chosen) + one.seconds <= _ROUND:
            chosen.append(one)
    chosen = chosen or [found[-1]]
    rounds = min(_MOST_ROUNDS, math.ceil(_LEAST / max(1e-7, sum(one.seconds for one in chosen))))
    return Inputs(tuple(chosen), len(found), rounds)

"""Which draws may still start or go on, and which of those that passed is the winner. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

Pick: TypeAlias = Literal["ordered", "first"]
Place: TypeAlias = tuple[int, int]
"""(round, branch): the order in which a sample of one branch after the other, round by round, would draw."""

PICKS: tuple[Pick, ...] = ("ordered", "first")


class Race:
    """The branches of one sample against each other.

    With `ordered`, the winner is the least (round, branch) that passes, whatever the delays: after a pass only draws
    before it may start or go on. With `first`, the first to pass in time wins, and nothing starts any more. A race that
    is not `early` has no winner before its end: every branch draws until it passes or is at its last round.
    """

    def __init__(self, breadth: int, depth: int, pick: Pick = "ordered", *, early: bool = True) -> None:
        """Nobody has drawn."""
        self.breadth = breadth
        self.depth = depth
        self._pick = pick
        self._early = early
        self._at = dict.fromkeys(range(breadth), 0)  # the round each branch is in; gone when it has ended
        self.best: Place | None = None

    def may_draw(self, branch: int, number: int) -> bool:
        """Whether the branch may start the round of that number."""
        if branch in self._at and number < self.depth and not self._is_beaten(branch, number):
            self._at[branch] = number
            return True
        self._at.pop(branch, None)
        return False

    def passed(self, branch: int, number: int) -> list[int]:
        """A draw passed; the branches that must stop now, since nothing they do can matter any more."""
        self._at.pop(branch, None)
        place = (number, branch)
        if self._early and (self.best is None or (self._pick == "ordered" and place < self.best)):
            self.best = place
        beaten = [other for other, at in self._at.items() if self._is_beaten(other, at)]
        for other in beaten:
            del self._at[other]
        return beaten

    def ended(self, branch: int) -> None:
        """A branch has ended without a pass."""
        self._at.pop(branch, None)

    def _is_beaten(self, branch: int, number: int) -> bool:
        if self.best is None:
            return False
        return self._pick == "first" or (number, branch) > self.best

"""Which draws may still start or go on, and where the sample ends: at a pass, or at an error for all. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

Pick: TypeAlias = Literal["ordered", "first"]
Place: TypeAlias = tuple[int, int]
"""(round, branch): the order in which a sample of one branch after the other, round by round, would draw."""

PICKS: tuple[Pick, ...] = ("ordered", "first")


class BranchOrder:
    """The branches of one sample against each other.

    A draw that passes ends the sample, and so does an error that concerns every draw. With
    `ordered`, the least (round, branch) of these decides, whatever the delays: only draws before it
    may start or go on. With `first`, the first of them in time decides, and nothing starts any
    more.

    In a race that is not `early` a pass ends its branch only: every branch draws until it passes or
    is at its last round. There an error for all ends the sample if no pass comes before it in
    (round, branch) order, and as soon as none can.
    """

    def __init__(
        self, breadth: int, depth: int, pick: Pick = "ordered", *, early: bool = True
    ) -> None:
        """No branch has drawn."""
        self.breadth = breadth
        self.depth = depth
        self._pick = pick
        self._early = early
        self._at = dict.fromkeys(
            range(breadth), 0
        )  # the round each branch is in; gone when it has ended
        self._passed: Place | None = None  # the least that passed
        self._broken: Place | None = None  # the least with an error for all
        self._end: Place | None = None  # what decides
        self._ended_well = False  # whether that is a pass

    @property
    def best(self) -> Place | None:
        """The pass that decides; None as long as there is none, and where an error for all does."""
        return self._end if self._ended_well else None

    @property
    def broken(self) -> Place | None:
        """The error for all that decides, if one does."""
        return None if self._ended_well else self._end

    def may_draw(self, branch: int, number: int) -> bool:
        """Whether the branch may start the round of that number."""
        if branch in self._at and number < self.depth:
            self._at[branch] = number
            self._decide()
            if not self._is_beaten(branch, number):
                return True
        self._at.pop(branch, None)
        return False

    def passed(self, branch: int, number: int) -> list[int]:
        """A draw passed; the branches that must stop now, since nothing they do can matter any more."""
        place = (number, branch)
        self._passed = place if self._passed is None else min(place, self._passed)
        if self._early:
            self._end_at(place, well=True)
        return self.ended(branch)

    def broke(self, branch: int, number: int) -> list[int]:
        """A draw met an error that concerns every draw; the branches that must stop now."""
        place = (number, branch)
        self._broken = place if self._broken is None else min(place, self._broken)
        if self._early:
            self._end_at(place, well=False)
        return self.ended(branch)

    def ended(self, branch: int) -> list[int]:
        """A branch has ended; the branches that must stop now."""
        self._at.pop(branch, None)
        self._decide()
        beaten = [other for other, at in self._at.items() if self._is_beaten(other, at)]
        for other in beaten:
            del self._at[other]
        return beaten

    def _end_at(self, place: Place, *, well: bool) -> None:
        if self._end is None or (self._pick == "ordered" and place < self._end):
            self._end, self._ended_well = place, well

    def _decide(self) -> None:
        """In a race that is not early, see whether an error for all has come before every pass there can be."""
        broken = self._broken
        if self._early or broken is None or (self._passed is not None and self._passed < broken):
            return
        if all((at, other) > broken for other, at in self._at.items()):
            self._end = broken

    def _is_beaten(self, branch: int, number: int) -> bool:
        if self._end is None:
            return False
        if not self._early or self._pick == "first":
            return True
        return (number, branch) > self._end

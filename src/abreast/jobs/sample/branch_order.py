"""Decides which branches may still draw, and which draw ends the sample. Pure."""

from typing import Literal, TypeAlias

Pick: TypeAlias = Literal["ordered", "first"]
Place: TypeAlias = tuple[int, int]
"""(round, branch): the order in which a sequential sample would draw."""

PICKS: tuple[Pick, ...] = ("ordered", "first")


class BranchOrder:
    """The order among the branches of one sample.

    A draw that passes ends the sample, and so does an error that concerns every draw. With
    `ordered`, the least (round, branch) of these decides, with any delays: only draws before it may
    start or continue. With `first`, the first of them in time decides, and no further draw starts.

    If not `early`, a pass ends only its own branch: every branch draws until it passes or has used
    its last round. Then an error for all draws ends the sample as soon as no pass can come before
    it in (round, branch) order.
    """

    def __init__(
        self, breadth: int, depth: int, pick: Pick = "ordered", *, early: bool = True
    ) -> None:
        self.breadth = breadth
        self.depth = depth
        self._pick = pick
        self._stop_early = early
        # By branch that has not ended: the round it is in.
        self._round_of = dict.fromkeys(range(breadth), 0)
        # The least that passed (True), and the least with an error for all draws (False).
        self._least: dict[bool, Place] = {}
        self._end: Place | None = None  # the place that decides
        self._ended_well = False  # whether the place that decides is a pass

    @property
    def best(self) -> Place | None:
        """The pass that decides; None if there is none yet, or if an error decides."""
        return self._end if self._ended_well else None

    @property
    def broken(self) -> Place | None:
        """The place of the error for all draws that decides, if one does."""
        return None if self._ended_well else self._end

    def may_draw(self, branch: int, number: int) -> bool:
        """Whether the branch may start the round of that number."""
        if branch in self._round_of and number < self.depth:
            self._round_of[branch] = number
            self._decide()
            if not self._is_after_end(branch, number):
                return True
        self._round_of.pop(branch, None)
        return False

    def passed(self, branch: int, number: int) -> list[int]:
        """Record a pass; return the branches that must stop, since they can't win any more."""
        return self._decided(branch, number, well=True)

    def broke(self, branch: int, number: int) -> list[int]:
        """Record an error that concerns every draw; return the branches that must stop."""
        return self._decided(branch, number, well=False)

    def ended(self, branch: int) -> list[int]:
        """Record the end of a branch; return the branches that must stop."""
        self._round_of.pop(branch, None)
        self._decide()
        beaten = [other for other, at in self._round_of.items() if self._is_after_end(other, at)]
        for other in beaten:
            del self._round_of[other]
        return beaten

    def _decided(self, branch: int, number: int, *, well: bool) -> list[int]:
        place = (number, branch)
        self._least[well] = min(place, self._least.get(well, place))
        first = self._end is None or (self._pick == "ordered" and place < self._end)
        if self._stop_early and first:
            self._end, self._ended_well = place, well
        return self.ended(branch)

    def _decide(self) -> None:
        """If not early: check whether an error for all draws precedes every pass that can come."""
        broken = self._least.get(False)
        if self._stop_early or broken is None or self._least.get(True, broken) < broken:
            return
        if all((at, other) > broken for other, at in self._round_of.items()):
            self._end = broken

    def _is_after_end(self, branch: int, number: int) -> bool:
        whatever = not self._stop_early or self._pick == "first"
        return self._end is not None and (whatever or (number, branch) > self._end)

"""Whether headers are believed: they may be old, rounded, or wrong."""

from math import inf
from typing import NamedTuple

_MOST_SURPRISES, _SOON = 3, 50  # rejections in spite of headers, within so many calls each


class BelievedKind(NamedTuple):
    """How a server was thought to count, by its headers."""

    is_bucket: bool
    capacity: float
    boundary: float | None


class HeaderTrust:
    """Doubts the headers of one rate for a time, or for good, and believes them again."""

    __slots__ = (
        "_again_from",
        "_doubt",
        "_doubted_calls",
        "_surprised_at",
        "_surprises",
        "is_given",
    )

    def __init__(self) -> None:
        self.is_given = True  # headers have proved right so far
        self._surprises = 0  # rejections that headers did not announce, one soon after the other
        self._surprised_at = 0  # the call
        self._again_from = inf  # the call whose header may be believed again
        self._doubted_calls = _SOON
        # The rejected call for which enough was left, what was left, and what was believed then.
        self._doubt: tuple[int, float, BelievedKind] | None = None

    def looks_again(self, serial: int) -> bool:
        """Whether the header of this call is to be compared with what was found since."""
        if serial < self._again_from:
            return False
        self._again_from = serial + self._doubted_calls
        return True

    def give(self) -> None:
        """Believe headers again."""
        self.is_given, self._again_from = True, inf

    def surprise(self, serial: int) -> None:
        """Record a rejection of which headers knew nothing.

        After several, one soon after the other, they are not believed for a number of calls: others
        may use the rate for a time. If they prove wrong again, that is for twice as many.
        """
        is_soon = serial - self._surprised_at < _SOON
        self._surprises = self._surprises + 1 if is_soon else 1
        self._surprised_at = serial
        if self._surprises >= _MOST_SURPRISES:
            self.is_given = False
            self._doubted_calls *= 2
            self._again_from = serial + self._doubted_calls

    def doubt(self, serial: int, left: float, kind: BelievedKind) -> None:
        """Do not believe headers that say of a rejected call that there was enough left for it."""
        self.is_given, self._again_from = False, inf
        self._doubt = (serial, left, kind)

    def settle(self, serial: int, cost: float) -> BelievedKind | None:
        """Record what a rejected call would have taken; the kind that was believed before a doubt.

        The header was right if the call was larger than thought, and is believed again.
        """
        if self._doubt is None or self._doubt[0] != serial:
            return None
        _, left, kind = self._doubt
        self._doubt = None
        if cost <= left:
            return None
        self.give()
        return kind

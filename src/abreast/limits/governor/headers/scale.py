"""By which factor headers are too large: a server may claim several times what it admits.

What is left then falls by so many times what calls take.
"""

from math import inf

from abreast.limits.governor.counter_copy import CounterCopy
from abreast.limits.governor.headers.facts import HeaderFacts
from abreast.limits.governor.sent_calls import SentCall

_LEAST_FACTOR = 1.15  # a smaller one may be chance
_LEAST_CALLS, _LEAST_PART = 2, 0.03  # calls, and the part of a limit, whose fall is compared
_LEAST_SETTLED = 0.5  # of what was sent: the rest is an estimate
_AGREES, _KNOWN = 0.15, 0.05  # of a factor: one that differs by less agrees, or is no news


class HeaderScale:
    """Compares how what is left falls by headers with how it falls by the count."""

    __slots__ = ("_before", "_start", "factor")

    def __init__(self) -> None:
        self.factor = 1.0
        self._start: tuple[float, SentCall] | None = None  # what was left after that call
        self._before = 1.0  # by the comparison before

    def compare(
        self, header: HeaderFacts, call: SentCall, copy: CounterCopy, mean: float, *, even: bool
    ) -> bool:
        """Use the header of a call; return whether another factor has been found.

        Two comparisons in a row must agree: when others begin to use the rate, less is left at
        once.
        """
        start, self._start = self._start, (header.left, call)
        if start is None or header.left >= start[0] or call.serial <= start[1].serial:
            return False
        between = [each for each in copy.sent.after(start[1].serial) if each.serial <= call.serial]
        spent = sum(each.cost for each in between)
        settled = spent if even else sum(each.cost for each in between if each.is_settled)
        counted = copy.left_after(start[1].serial, start[1].at) - copy.left_after(
            call.serial, call.at
        )
        if settled < _LEAST_SETTLED * spent or not 0 < counted < inf:
            return False
        fall = start[0] - header.left
        # So much that neither the order in which calls arrive counts, nor what came back.
        if fall < _LEAST_PART * header.limit or counted < max(_LEAST_CALLS * mean, spent / 2):
            self._start = start
            return False
        return self._agrees(fall / counted if fall > _LEAST_FACTOR * (counted + mean) else 1.0)

    def _agrees(self, found: float) -> bool:
        before, self._before = self._before, found
        is_same = abs(found - before) <= _AGREES * before
        if not is_same or abs(found - self.factor) <= _KNOWN * self.factor:
            return False
        self.factor = (found + before) / 2
        return True

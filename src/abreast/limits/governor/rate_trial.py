"""When to try a faster rate of a bucket than was found by rejections, and how much faster.

The speed grows with the calls that had to wait: the later, the closer the rates are to each other
that explain the rejections, and the more of them agree. A rate that has fallen will probably rise
again, and is tried more often.
"""

from math import exp2, inf

from abreast.limits.governor.rejection_fit import Explanation

FAST_GROWTH = 0.25  # of the speed, if next to nothing was measured
SLOW_GROWTH = 0.01
_PATIENCE, _LEAST_PATIENCE, _MOST_PATIENCE = 16.0, 8.0, 800.0  # calls that wait before a trial
_PATIENCE_OF_FALLEN = 64.0
_CALLS_IF_SURE = 8.0  # before a trial, divided by how uncertain a rate is
_CALLS_IF_UNSURE = 48.0  # at most, in the same way
_CALLS_OF_CALLS = 20  # before a trial, for each call by which a rate is known
_PATIENCE_GROWTH, _PATIENCE_GROWTH_OF_FALLEN = 3, 2  # with each rejection that agrees
_DOUBLINGS, _MOST_DOUBLINGS = 6, 10.0  # of the growth, in so many calls
_AGREES = 0.95  # of a rate: one that differs by less is the same
_NEARLY_ALL = 0.93  # of the highest rate: one below it has fallen
_SURE = 0.1  # an uncertainty below it is that of a rate that is known well


class RateTrial:
    """Counts the calls that waited since nothing was left."""

    __slots__ = ("_highest_sure", "_passed", "_patience", "highest", "uncertainty")

    def __init__(self) -> None:
        self._passed = 0
        self._patience = _LEAST_PATIENCE  # calls, before the speed grows by `uncertainty`
        self._highest_sure = 0.0  # the highest rate that was known well
        self.uncertainty = FAST_GROWTH  # how much faster than was found the rate may be
        self.highest = inf  # the highest rate that explains the last rejections

    @property
    def growth(self) -> float:
        """By which part calls are sent faster than at the rate."""
        doublings = min(_MOST_DOUBLINGS, _DOUBLINGS * self._passed / self._patience)
        return max(self.uncertainty, 1 / self._patience) * (exp2(doublings) - 1.0)

    def send(self) -> None:
        """Record that a call is sent that had to wait."""
        self._passed += 1

    def begin_anew(self) -> None:
        """Begin to count again: a call was rejected, or the rate has grown."""
        self._passed = 0

    def hurry(self, saved: float) -> None:
        """Try soon: next to nothing is known of the rate.

        Before the calls that were `saved` up are used, nothing is learned of it.
        """
        self._patience, self.uncertainty = max(_LEAST_PATIENCE, saved), FAST_GROWTH

    def expect(self) -> None:
        """Try late: the rate was found in an earlier run."""
        self._patience, self.uncertainty = _MOST_PATIENCE, SLOW_GROWTH

    def doubt(self) -> None:
        """Try soon: the rate was that of headers which have proved wrong."""
        self._patience, self.uncertainty = _PATIENCE, FAST_GROWTH

    def scale(self, change: float) -> None:
        """The limit has changed by that factor; what explained rejections is over."""
        self.highest = inf
        self._highest_sure *= change

    def confirm(self, rate: float, before: float, found: Explanation, calls: int) -> None:
        """Several rejections are explained, with so many calls between them; `before` was believed.

        Trials become rarer the more of them agree and the closer their rates are to each other.
        """
        agrees = found.low * _AGREES <= before <= found.high / _AGREES
        self.uncertainty = min(FAST_GROWTH, max(0.0, found.high - found.low) / rate / 2)
        if self.uncertainty <= _SURE:
            self._highest_sure = max(self._highest_sure, rate)
        has_fallen = rate < _NEARLY_ALL * self._highest_sure
        unsure = max(self.uncertainty, 1 / _MOST_PATIENCE)
        growth = _PATIENCE_GROWTH_OF_FALLEN if has_fallen else _PATIENCE_GROWTH
        patience = _PATIENCE
        if agrees:
            patience = min(growth * self._patience, _CALLS_IF_UNSURE / unsure)
        elif has_fallen:
            patience = min(patience, growth * self._patience)
        least = min(_CALLS_IF_SURE / unsure, _CALLS_OF_CALLS * calls)
        if has_fallen:
            least = min(least, _PATIENCE_OF_FALLEN)
        self._patience = min(max(patience, least), _MOST_PATIENCE)

"""When to try whether a minute allows more than was found, and how much more.

After one, three and then nine minutes that were used up without a rejection a little more may go.
Once a call beyond what was accepted so far is accepted too, twice as much more may go at once, so
that a limit that has risen is found within a minute, at the price of one rejection.
"""

from math import inf

_MOST_MINUTES = 9  # before a trial
_TOLERANCE = 1e-6


class MinuteTrial:
    """Counts minutes without a rejection, and follows the calls of a trial."""

    __slots__ = ("_accepted_until", "_growth", "_minutes_before", "_quiet_minutes", "_sent")

    def __init__(self) -> None:
        self._minutes_before = 1
        self._quiet_minutes = 0
        self._accepted_until = inf  # what of a minute was accepted before the trial
        self._sent: float | None = None  # when the first call beyond that was sent
        self._growth = 0.0

    def is_due(self) -> bool:
        """Count a minute that was used up without a rejection; return whether to try more."""
        self._quiet_minutes += 1
        return self._quiet_minutes >= self._minutes_before

    def begin(self, growth: float) -> None:
        """Begin with so much more, as a part of a minute's amount."""
        self._growth = growth

    def enlarge(self, amount: float, least: float) -> float:
        """Return the larger amount to try, by `least` at least."""
        self._accepted_until, self._sent = amount, None
        larger = amount + max(self._growth * amount, least)
        self._growth *= 2.0
        return larger

    def send(self, used: float, now: float) -> None:
        """Record that a call was sent, after which so much of the minute is used."""
        if self._sent is None and used > self._accepted_until + _TOLERANCE:
            self._sent = now

    def shows_more(self, sent: float) -> bool:
        """Whether a call of that time, which was accepted, shows that a minute allows more."""
        return self._sent is not None and sent >= self._sent

    def reject(self) -> None:
        """Record a rejection: the trial is over."""
        self._quiet_minutes = 0
        self._accepted_until, self._sent = inf, None

    def wait_longer(self) -> None:
        """The amount is confirmed: try it more rarely."""
        self._minutes_before = min(_MOST_MINUTES, 3 * self._minutes_before)

    def wait_least(self) -> None:
        """The amount is not sure: try it soon."""
        self._minutes_before = 1

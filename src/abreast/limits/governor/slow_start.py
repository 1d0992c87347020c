"""Slow start: spaces out calls, at a speed that doubles while no call is rejected."""

from math import exp2

_RATE_MULTIPLE = 4  # the highest speed, as a multiple of the rate if that is known
_MAX_DOUBLINGS = 14.0
_MAX_CATCH_UP = 0.2  # seconds of delay that following calls make up for


class SlowStart:
    """At most `speed` calls per second, doubled after every `doubling_time`."""

    __slots__ = ("_doubling_time", "_due", "_second", "_speed", "_start")

    def __init__(self, now: float, speed: float, doubling_time: float, second: float) -> None:
        """`speed` is in calls per second of the clock.

        `second` is the length of a second of the server.
        """
        self._start = self._due = now
        self._speed = speed
        self._doubling_time = doubling_time
        self._second = second
        self._due = now + 1.0 / speed

    def sent(self, now: float, rate: float | None, *, in_window: bool) -> None:
        """Record that a call was sent; timers fire late, and a little of that is made up for."""
        base = max(self._due, now - _MAX_CATCH_UP * self._second)
        self._due = base + 1.0 / self._speed_at(now, rate, in_window=in_window)

    def due(self, now: float) -> float | None:
        """None if the next call may go, else the time when it may."""
        return self._due if now < self._due - 1e-12 else None

    def _speed_at(self, now: float, rate: float | None, *, in_window: bool) -> float:
        """The speed at `now`: with a known rate, what is left of it is used soon, but not at once.

        Calls that are sent together arrive in another order, which makes their headers less exact.
        """
        speed = self._speed * exp2(min(_MAX_DOUBLINGS, (now - self._start) / self._doubling_time))
        if rate is None:
            return speed
        return min(
            speed,
            max((3 * _RATE_MULTIPLE if in_window else _RATE_MULTIPLE) * rate, 4 / self._second),
        )

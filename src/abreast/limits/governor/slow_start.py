"""Slow start: spaces out calls, at a speed that grows with every call while none is rejected."""

from math import log

_MAX_CATCH_UP = 0.2  # seconds of delay that following calls make up for


class SlowStart:
    """At most `speed` calls per second, doubled after every `doubling_time` of sending so fast.

    The speed grows with the calls and not with time: while something else holds calls back, nothing
    is learned of what the server admits.
    """

    __slots__ = ("_due", "_growth", "_second", "_speed")

    def __init__(self, now: float, speed: float, doubling_time: float, second: float) -> None:
        """`speed` is in calls per second of the clock.

        `second` is the length of a second of the server.
        """
        self._speed = speed
        self._growth = log(2) / doubling_time  # calls per second, for each call
        self._second = second
        self._due = now + 1.0 / speed

    def sent(self, now: float) -> None:
        """Record that a call was sent; timers fire late, and a little of that is made up for."""
        base = max(self._due, now - _MAX_CATCH_UP * self._second)
        self._speed += self._growth
        self._due = base + 1.0 / self._speed

    def due(self, now: float) -> float | None:
        """None if the next call may go, else the time when it may."""
        return self._due if now < self._due - 1e-12 else None

"""Never in a rush: calls of one kind go out one after the other, faster and faster while nobody objects."""

from __future__ import annotations

from math import exp2

_HASTE = 4  # times the rate, where it is known
_DOUBLINGS = 14.0


class Pulse:
    """At most so many in a second, and twice as many with each beat."""

    __slots__ = ("_beat", "_last", "_speed", "_start", "_tick")

    def __init__(self, now: float, speed: float, beat: float, tick: float) -> None:
        """`speed` is in calls by the clock's second; `tick` is how long a second of the server is."""
        self._start = self._last = now
        self._speed = speed
        self._beat = beat
        self._tick = tick

    def sent(self, now: float) -> None:
        """A call went out."""
        self._last = now

    def due(self, now: float, rate: float | None, *, in_window: bool) -> float | None:
        """None if the next may go, else when.

        With a known rate, what is left of it is used up soon, but not at once: calls that go out together arrive in
        disorder, and headers then tell less than they seem to.
        """
        speed = self._speed * exp2(min(_DOUBLINGS, (now - self._start) / self._beat))
        if rate is not None:
            speed = min(speed, max((3 * _HASTE if in_window else _HASTE) * rate, 4 / self._tick))
        due = self._last + 1.0 / speed
        return due if now < due - 1e-12 else None

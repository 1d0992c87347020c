"""Never in a rush: calls of one kind go out one after the other, faster and faster while nobody objects."""

from __future__ import annotations

from math import exp2

_HASTE = 4  # times the rate, where it is known
_DOUBLINGS = 14.0
_LATE = 0.2  # seconds that are made up for


class SlowStart:
    """At most so many in a second, and twice as many with each beat."""

    __slots__ = ("_beat", "_due", "_speed", "_start", "_tick")

    def __init__(self, now: float, speed: float, beat: float, tick: float) -> None:
        """`speed` is in calls by the clock's second.

        `tick` is how long a second of the server is.
        """
        self._start = self._due = now
        self._speed = speed
        self._beat = beat
        self._tick = tick
        self._due = now + 1.0 / speed

    def sent(self, now: float, rate: float | None, *, in_window: bool) -> None:
        """A call went out. Who comes late, as timers do, makes up for a little of it."""
        late = max(self._due, now - _LATE * self._tick)
        self._due = late + 1.0 / self._speed_at(now, rate, in_window=in_window)

    def due(self, now: float) -> float | None:
        """None if the next may go, else when."""
        return self._due if now < self._due - 1e-12 else None

    def _speed_at(self, now: float, rate: float | None, *, in_window: bool) -> float:
        """With a known rate, what is left of it is used up soon, but not at once.

        Calls that go out together arrive in disorder, and headers then tell less than they seem to.
        """
        speed = self._speed * exp2(min(_DOUBLINGS, (now - self._start) / self._beat))
        if rate is None:
            return speed
        return min(speed, max((3 * _HASTE if in_window else _HASTE) * rate, 4 / self._tick))

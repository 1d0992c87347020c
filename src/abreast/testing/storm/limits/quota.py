"""So much in a minute, counted as servers do: a bucket that fills, a fixed minute, or a minute that slides."""

from __future__ import annotations

from collections import deque
from math import floor, inf
from typing import Protocol

_HAIR = 1e-9  # of a request or token: what adding up fractions of them may lack


class Quota(Protocol):
    """What every way of counting can say and do. Nothing bigger than `hold` ever fits.

    Times never go back.
    """

    limit: float
    hold: float

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` fits: 0 if it does now, infinite if it never will."""

    def take(self, amount: float, now: float) -> None:
        """Use it up, whether it fits or not."""

    def left(self, now: float) -> float:
        """How much fits now."""

    def reset(self, now: float) -> float:
        """Seconds until all of it is there again."""

    def resize(self, limit: float, hold: float) -> None:
        """Another limit from now on; what is used stays used."""


class Bucket:
    """Fills evenly, up to `hold`: any stretch of t seconds admits at most `hold + limit * t / minute`."""

    __slots__ = ("_at", "_level", "_rate", "hold", "limit", "minute")

    def __init__(self, limit: float, hold: float, minute: float, start: float) -> None:
        self.minute = minute
        self._level = hold
        self._at = start
        self.resize(limit, hold)

    def resize(self, limit: float, hold: float) -> None:
        """Fill at another rate; what is above the new brim is gone."""
        self.limit = limit
        self.hold = hold
        self._rate = limit / self.minute
        self._level = min(self._level, hold)

    def wait(self, amount: float, now: float) -> float:
        """Until it has filled so far."""
        self._fill(now)
        if amount > self.hold + _HAIR:
            return inf
        lacking = amount - self._level
        return lacking / self._rate if lacking > _HAIR else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take it out; the level may go below zero."""
        self._fill(now)
        self._level -= amount

    def left(self, now: float) -> float:
        """The level."""
        self._fill(now)
        return max(0.0, self._level)

    def reset(self, now: float) -> float:
        """Until it is full."""
        self._fill(now)
        return (self.hold - self._level) / self._rate

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.hold, self._level + (now - self._at) * self._rate)
            self._at = now


class Fixed:
    """Counts from nothing again at each full minute since the start."""

    __slots__ = ("_index", "_used", "hold", "limit", "minute", "start")

    def __init__(self, limit: float, minute: float, start: float) -> None:
        self.limit = self.hold = limit
        self.minute = minute
        self.start = start
        self._index = 0
        self._used = 0.0

    def resize(self, limit: float, hold: float) -> None:  # noqa: ARG002 - a minute has no brim
        """Another limit, for the minute that runs too."""
        self.limit = self.hold = limit

    def wait(self, amount: float, now: float) -> float:
        """Until the next minute, if it doesn't fit into this one."""
        if amount > self.limit + _HAIR:
            return inf
        self._turn(now)
        return 0.0 if self._used + amount <= self.limit + _HAIR else self._ends() - now

    def take(self, amount: float, now: float) -> None:
        """Count it in the minute that runs."""
        self._turn(now)
        self._used += amount

    def left(self, now: float) -> float:
        """What this minute still has."""
        self._turn(now)
        return max(0.0, self.limit - self._used)

    def reset(self, now: float) -> float:
        """Until the next minute."""
        self._turn(now)
        return self._ends() - now

    def _ends(self) -> float:
        return self.start + (self._index + 1) * self.minute

    def _turn(self, now: float) -> None:
        index = floor((now - self.start) / self.minute)
        # Whoever comes at the very end of a minute, as told, is in the next one, whatever the
        # division rounds to.
        if now >= self.start + (index + 1) * self.minute:
            index += 1
        if index > self._index:
            self._index = index
            self._used = 0.0


class Sliding:
    """At no moment have the last `minute` seconds seen more than `limit`."""

    __slots__ = ("_seen", "_used", "hold", "limit", "minute")

    def __init__(self, limit: float, minute: float) -> None:
        self.limit = self.hold = limit
        self.minute = minute
        self._seen: deque[tuple[float, float]] = (
            deque()
        )  # when it leaves the window, and how much it was
        self._used = 0.0

    def resize(self, limit: float, hold: float) -> None:  # noqa: ARG002 - a minute has no brim
        """Another limit; what was seen is still in the window."""
        self.limit = self.hold = limit

    def wait(self, amount: float, now: float) -> float:
        """Until enough of the oldest have left the window."""
        if amount > self.limit + _HAIR:
            return inf
        self._slide(now)
        lacking = self._used + amount - self.limit
        if lacking <= _HAIR:
            return 0.0
        for leaves, seen in self._seen:
            lacking -= seen
            if lacking <= _HAIR:
                return leaves - now
        return self.minute

    def take(self, amount: float, now: float) -> None:
        """Count it until it has left the window."""
        self._slide(now)
        self._seen.append((now + self.minute, amount))
        self._used += amount

    def left(self, now: float) -> float:
        """What fits beside all that is in the window."""
        self._slide(now)
        return max(0.0, self.limit - self._used)

    def reset(self, now: float) -> float:
        """Until the window is empty."""
        self._slide(now)
        return self._seen[-1][0] - now if self._seen else 0.0

    def _slide(self, now: float) -> None:
        seen = self._seen
        while seen and seen[0][0] <= now:
            self._used -= seen.popleft()[1]


def make_quota(window: str, limit: float, hold: float, minute: float, start: float) -> Quota:
    """The way of counting that `window` names."""
    if window == "fixed":
        return Fixed(limit, minute, start)
    if window == "sliding":
        return Sliding(limit, minute)
    return Bucket(limit, hold, minute, start)

"""Quotas per minute, counted as servers do: a bucket, a fixed minute, or a sliding minute."""

from __future__ import annotations

from collections import deque
from math import floor, inf
from typing import Protocol

_TOLERANCE = 1e-9  # of a request or token: the rounding error of summed fractions


class Quota(Protocol):
    """What every way of counting provides. An amount above `hold` never fits.

    Times never go back.
    """

    limit: float
    hold: float

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` fits: 0 if it does now, infinite if it never will."""

    def take(self, amount: float, now: float) -> None:
        """Charge it, whether it fits or not."""

    def left(self, now: float) -> float:
        """How much fits now."""

    def reset(self, now: float) -> float:
        """Seconds until all of it is available again."""

    def resize(self, limit: float, hold: float) -> None:
        """Change the limit from now on; what is used stays used."""


class Bucket:
    """Fills evenly up to `hold`: t seconds admit at most `hold + limit * t / minute`."""

    __slots__ = ("_at", "_level", "_rate", "hold", "limit", "minute")

    def __init__(self, limit: float, hold: float, minute: float, start: float) -> None:
        self.minute = minute
        self._level = hold
        self._at = start
        self.resize(limit, hold)

    def resize(self, limit: float, hold: float) -> None:
        """Fill at another rate; the level is cut to the new capacity."""
        self.limit = limit
        self.hold = hold
        self._rate = limit / self.minute
        self._level = min(self._level, hold)

    def wait(self, amount: float, now: float) -> float:
        """Seconds until the level is high enough."""
        self._fill(now)
        if amount > self.hold + _TOLERANCE:
            return inf
        missing = amount - self._level
        return missing / self._rate if missing > _TOLERANCE else 0.0

    def take(self, amount: float, now: float) -> None:
        """Subtract it; the level may go below zero."""
        self._fill(now)
        self._level -= amount

    def left(self, now: float) -> float:
        """The level."""
        self._fill(now)
        return max(0.0, self._level)

    def reset(self, now: float) -> float:
        """Seconds until it is full."""
        self._fill(now)
        return (self.hold - self._level) / self._rate

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self.hold, self._level + (now - self._at) * self._rate)
            self._at = now


class Fixed:
    """Starts from zero at each full minute since the start."""

    __slots__ = ("_index", "_used", "hold", "limit", "minute", "start")

    def __init__(self, limit: float, minute: float, start: float) -> None:
        self.limit = self.hold = limit
        self.minute = minute
        self.start = start
        self._index = 0
        self._used = 0.0

    def resize(self, limit: float, hold: float) -> None:  # noqa: ARG002 - a minute has no capacity
        """Change the limit, also for the current minute."""
        self.limit = self.hold = limit

    def wait(self, amount: float, now: float) -> float:
        """Seconds until the next minute, if it doesn't fit into this one."""
        if amount > self.limit + _TOLERANCE:
            return inf
        self._start_minute(now)
        return 0.0 if self._used + amount <= self.limit + _TOLERANCE else self._minute_end() - now

    def take(self, amount: float, now: float) -> None:
        """Count it in the current minute."""
        self._start_minute(now)
        self._used += amount

    def left(self, now: float) -> float:
        """What is left of the current minute."""
        self._start_minute(now)
        return max(0.0, self.limit - self._used)

    def reset(self, now: float) -> float:
        """Seconds until the next minute."""
        self._start_minute(now)
        return self._minute_end() - now

    def _minute_end(self) -> float:
        return self.start + (self._index + 1) * self.minute

    def _start_minute(self, now: float) -> None:
        index = floor((now - self.start) / self.minute)
        # A request at the exact end of a minute, as the headers say, is in the next one, whatever
        # the division rounds to.
        if now >= self.start + (index + 1) * self.minute:
            index += 1
        if index > self._index:
            self._index = index
            self._used = 0.0


class Sliding:
    """The last `minute` seconds never contain more than `limit`."""

    __slots__ = ("_seen", "_used", "hold", "limit", "minute")

    def __init__(self, limit: float, minute: float) -> None:
        self.limit = self.hold = limit
        self.minute = minute
        # For each request, when it leaves the window and its amount.
        self._seen: deque[tuple[float, float]] = deque()
        self._used = 0.0

    def resize(self, limit: float, hold: float) -> None:  # noqa: ARG002 - a minute has no capacity
        """Change the limit; earlier requests remain in the window."""
        self.limit = self.hold = limit

    def wait(self, amount: float, now: float) -> float:
        """Seconds until enough of the oldest have left the window."""
        if amount > self.limit + _TOLERANCE:
            return inf
        self._slide(now)
        missing = self._used + amount - self.limit
        if missing <= _TOLERANCE:
            return 0.0
        for leaves, seen in self._seen:
            missing -= seen
            if missing <= _TOLERANCE:
                return leaves - now
        return self.minute

    def take(self, amount: float, now: float) -> None:
        """Count it until it leaves the window."""
        self._slide(now)
        self._seen.append((now + self.minute, amount))
        self._used += amount

    def left(self, now: float) -> float:
        """What fits beside all that is in the window."""
        self._slide(now)
        return max(0.0, self.limit - self._used)

    def reset(self, now: float) -> float:
        """Seconds until the window is empty."""
        self._slide(now)
        return self._seen[-1][0] - now if self._seen else 0.0

    def _slide(self, now: float) -> None:
        seen = self._seen
        while seen and seen[0][0] <= now:
            self._used -= seen.popleft()[1]


def make_quota(window: str, limit: float, hold: float, minute: float, start: float) -> Quota:
    """Make the quota that counts as `window` says."""
    if window == "fixed":
        return Fixed(limit, minute, start)
    if window == "sliding":
        return Sliding(limit, minute)
    return Bucket(limit, hold, minute, start)

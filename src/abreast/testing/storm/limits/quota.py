"""Quotas per minute, counted as servers do: a bucket, a fixed minute, or a sliding minute."""

from abc import ABC, abstractmethod
from collections import deque
from math import floor, inf

_TOLERANCE = 1e-9  # of a request or token: the rounding error of summed fractions


class Quota(ABC):
    """What is used of a limit. An amount above `hold` never fits.

    Times never go back.
    """

    def __init__(self, limit: float, hold: float, minute: float) -> None:
        self.minute = minute
        self.used = 0.0
        self.resize(limit, hold)

    def resize(self, limit: float, hold: float) -> None:  # noqa: ARG002 - a minute has no capacity
        """Change the limit from now on; what is used stays used."""
        self.limit = self.hold = limit

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` fits: 0 if it does now, infinite if it never will."""
        self._move_to(now)
        if amount > self.hold + _TOLERANCE:
            return inf
        missing = self.used + amount - self.hold
        return self._wait_for(missing, now) if missing > _TOLERANCE else 0.0

    def take(self, amount: float, now: float) -> None:
        """Charge it, whether it fits or not."""
        self._move_to(now)
        self.used += amount

    def left(self, now: float) -> float:
        """How much fits now."""
        self._move_to(now)
        return max(0.0, self.hold - self.used)

    @abstractmethod
    def reset(self, now: float) -> float:
        """Seconds until all of it is available again."""

    @abstractmethod
    def _move_to(self, now: float) -> None:
        """Free what is no longer used."""

    @abstractmethod
    def _wait_for(self, missing: float, now: float) -> float:
        """Seconds until so much more is free."""


class Bucket(Quota):
    """Fills evenly up to `hold`: t seconds admit at most `hold + limit * t / minute`."""

    def __init__(self, limit: float, hold: float, minute: float, start: float) -> None:
        self.hold = hold
        self._at = start
        super().__init__(limit, hold, minute)

    def resize(self, limit: float, hold: float) -> None:
        """Fill at another rate; the level is cut to the new capacity."""
        self.used = max(0.0, self.used + hold - self.hold)
        self.limit = limit
        self.hold = hold
        self._rate = limit / self.minute

    def reset(self, now: float) -> float:
        """Seconds until it is full."""
        self._move_to(now)
        return self.used / self._rate

    def _move_to(self, now: float) -> None:
        if now > self._at:
            self.used = max(0.0, self.used - (now - self._at) * self._rate)
            self._at = now

    def _wait_for(self, missing: float, now: float) -> float:  # noqa: ARG002 - the rate is even
        return missing / self._rate


class Fixed(Quota):
    """Starts from zero at each full minute since the start."""

    def __init__(self, limit: float, minute: float, start: float) -> None:
        super().__init__(limit, limit, minute)
        self.start = start
        self._index = 0

    def reset(self, now: float) -> float:
        """Seconds until the next minute."""
        self._move_to(now)
        return self.start + (self._index + 1) * self.minute - now

    def _move_to(self, now: float) -> None:
        index = floor((now - self.start) / self.minute)
        # A request at the exact end of a minute, as the headers say, is in the next one, whatever
        # the division rounds to.
        if now >= self.start + (index + 1) * self.minute:
            index += 1
        if index > self._index:
            self._index = index
            self.used = 0.0

    def _wait_for(self, missing: float, now: float) -> float:  # noqa: ARG002 - all is free at once
        return self.reset(now)


class Sliding(Quota):
    """The last `minute` seconds never contain more than `limit`."""

    def __init__(self, limit: float, minute: float) -> None:
        super().__init__(limit, limit, minute)
        # For each request, when it leaves the window and its amount.
        self._seen: deque[tuple[float, float]] = deque()

    def take(self, amount: float, now: float) -> None:
        """Count it until it leaves the window."""
        super().take(amount, now)
        self._seen.append((now + self.minute, amount))

    def reset(self, now: float) -> float:
        """Seconds until the window is empty."""
        self._move_to(now)
        return self._seen[-1][0] - now if self._seen else 0.0

    def _move_to(self, now: float) -> None:
        seen = self._seen
        while seen and seen[0][0] <= now:
            self.used -= seen.popleft()[1]

    def _wait_for(self, missing: float, now: float) -> float:
        for leaves, seen in self._seen:
            missing -= seen
            if missing <= _TOLERANCE:
                return leaves - now
        return self.minute


def make_quota(window: str, limit: float, hold: float, minute: float, start: float) -> Quota:
    """Make the quota that counts as `window` says."""
    if window == "fixed":
        return Fixed(limit, minute, start)
    return Sliding(limit, minute) if window == "sliding" else Bucket(limit, hold, minute, start)

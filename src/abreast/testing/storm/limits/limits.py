"""The rates and quotas of a storm: which requests they admit, what they charge, what is left.

A minute is counted as servers do: as a bucket, a fixed minute, or a sliding minute.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from math import floor, inf
from typing import NamedTuple

from abreast.testing.storm.settings import Settings

_DAY_MINUTES = 1440
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


Costs = Mapping[str, float]


class LimitLevel(NamedTuple):
    """A limit, how much of it is left, and in how many seconds all of it is available again."""

    limit: float
    left: float
    reset: float


def cost_of(input_tokens: int, output_tokens: int) -> Costs:
    """How much a request with so many tokens takes of each limit, by the name of its setting."""
    return {
        "rpm": 1,
        "tpm": input_tokens + output_tokens,
        "input_tpm": input_tokens,
        "output_tpm": output_tokens,
        "per_day": 1,
    }


class StormLimits:
    """All rates and quotas of the settings; a request passes all of them or is charged to none."""

    def __init__(self, settings: Settings, start: float) -> None:
        self._start = start
        self._quotas: dict[str, Quota] = {}
        self.apply(settings, start)

    def apply(self, settings: Settings, now: float) -> None:
        """Apply settings from now on, keeping what is used of the limits that remain."""
        self._settings = settings
        for name in cost_of(0, 0):
            limit = getattr(settings, name)
            if limit is None:
                self._quotas.pop(name, None)
            elif name == "per_day":
                self._set_quota(name, limit, limit, now)
            else:
                burst = settings.burst if name == "rpm" else settings.token_burst
                own_limit = limit * (1.0 - settings.neighbour)
                self._set_quota(
                    name, own_limit, max(1.0, own_limit) if burst is None else burst, now
                )

    def blocking_limit(self, cost: Costs, now: float) -> tuple[str, float]:
        """The limit that blocks a request for longest, and for how many seconds.

        The name is empty if none does.
        """
        kind, longest = "", 0.0
        admits_oversize = self._settings.oversize == "admit"
        for name, quota in self._quotas.items():
            amount = cost[name]
            wait = quota.wait(min(amount, quota.hold) if admits_oversize else amount, now)
            if wait > longest:
                kind, longest = name, wait
        return ("oversize" if longest == inf else kind), longest

    def charge(self, cost: Costs, now: float) -> None:
        """Charge a request to all limits."""
        for name, quota in self._quotas.items():
            quota.take(cost[name], now)

    def levels(self, now: float) -> dict[str, LimitLevel]:
        """How much of each rate is left.

        The limit shown includes the neighbour's share.
        """
        shown = 1.0 - self._settings.neighbour
        return {
            name: LimitLevel(quota.limit / shown, quota.left(now), quota.reset(now))
            for name, quota in self._quotas.items()
            if name != "per_day"
        }

    def _set_quota(self, name: str, limit: float, hold: float, now: float) -> None:
        quota = self._quotas.get(name)
        if quota is not None:
            quota.left(now)  # fill it at the old rate up to now
            quota.resize(limit, hold)
            return
        window, minute = self._settings.window, self._settings.minute
        if name == "per_day":
            window, minute = "fixed", minute * _DAY_MINUTES
        self._quotas[name] = (
            Fixed(limit, minute, self._start)
            if window == "fixed"
            else Sliding(limit, minute)
            if window == "sliding"
            else Bucket(limit, hold, minute, now)
        )

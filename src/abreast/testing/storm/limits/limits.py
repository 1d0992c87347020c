"""The rates and quotas of a storm: which requests they admit, what they charge, what is left."""

from math import inf
from typing import NamedTuple

from abreast.testing.storm.limits.quota import Quota, make_quota
from abreast.testing.storm.settings import Settings

_DAY_MINUTES = 1440


class RequestCost(NamedTuple):
    """How much a request takes of each limit, by the name of its setting."""

    rpm: float
    tpm: float
    input_tpm: float
    output_tpm: float
    per_day: float


class LimitLevel(NamedTuple):
    """A limit, how much of it is left, and in how many seconds all of it is available again."""

    limit: float
    left: float
    reset: float


def cost_of(input_tokens: int, output_tokens: int) -> RequestCost:
    """The cost of a request with so many tokens."""
    return RequestCost(1, input_tokens + output_tokens, input_tokens, output_tokens, 1)


class StormLimits:
    """All rates and quotas of the settings; a request passes all of them or is charged to none."""

    def __init__(self, settings: Settings, start: float) -> None:
        self._start = start
        self._quotas: dict[str, Quota] = {}
        self.apply(settings, start)

    def apply(self, settings: Settings, now: float) -> None:
        """Apply settings from now on, keeping what is used of the limits that remain."""
        self._settings = settings
        for name in RequestCost._fields:
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

    def blocking_limit(self, cost: RequestCost, now: float) -> tuple[str, float]:
        """The limit that blocks a request for longest, and for how many seconds.

        The name is empty if none does.
        """
        kind, longest = "", 0.0
        admits_oversize = self._settings.oversize == "admit"
        for name, quota in self._quotas.items():
            amount = getattr(cost, name)
            wait = quota.wait(min(amount, quota.hold) if admits_oversize else amount, now)
            if wait > longest:
                kind, longest = name, wait
        return ("oversize" if longest == inf else kind), longest

    def charge(self, cost: RequestCost, now: float) -> None:
        """Charge a request to all limits."""
        for name, quota in self._quotas.items():
            quota.take(getattr(cost, name), now)

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
        self._quotas[name] = make_quota(
            window, limit, hold, minute, self._start if window == "fixed" else now
        )

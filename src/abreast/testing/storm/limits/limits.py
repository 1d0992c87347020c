"""The rates and quotas of a storm: what they let in, what they charge, and how full they are."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from abreast.testing.storm.limits.quota import Quota, make_quota
from abreast.testing.storm.settings import Settings

_DAY = 1440  # minutes


class RequestCost(NamedTuple):
    """What a request takes of each limit, by the name of its setting."""

    rpm: float
    tpm: float
    input_tpm: float
    output_tpm: float
    per_day: float


class LimitLevel(NamedTuple):
    """A limit, how much of it is left, and in how many seconds all of it is there again."""

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
        self.arrange(settings, start)

    def arrange(self, settings: Settings, now: float) -> None:
        """Be what the settings say from now on, keeping what is used of the limits that stay."""
        self._settings = settings
        for name in RequestCost._fields:
            limit = getattr(settings, name)
            if limit is None:
                self._quotas.pop(name, None)
            elif name == "per_day":
                self._place(name, limit, limit, now)
            else:
                burst = settings.burst if name == "rpm" else settings.token_burst
                ours = limit * (1.0 - settings.neighbour)
                self._place(name, ours, max(1.0, ours) if burst is None else burst, now)

    def hindrance(self, cost: RequestCost, now: float) -> tuple[str, float]:
        """Which limit is in the way, and for how long: the one that lasts longest.

        No name if none is.
        """
        kind, longest = "", 0.0
        alone = self._settings.oversize == "admit"
        for name, quota in self._quotas.items():
            amount = getattr(cost, name)
            wait = quota.wait(min(amount, quota.hold) if alone else amount, now)
            if wait > longest:
                kind, longest = name, wait
        return ("oversize" if longest == inf else kind), longest

    def charge(self, cost: RequestCost, now: float) -> None:
        """Use up what a request takes."""
        for name, quota in self._quotas.items():
            quota.take(getattr(cost, name), now)

    def levels(self, now: float) -> dict[str, LimitLevel]:
        """How full each rate is.

        The limit that is told is everybody's, the neighbour's share included.
        """
        shown = 1.0 - self._settings.neighbour
        return {
            name: LimitLevel(quota.limit / shown, quota.left(now), quota.reset(now))
            for name, quota in self._quotas.items()
            if name != "per_day"
        }

    def _place(self, name: str, limit: float, hold: float, now: float) -> None:
        quota = self._quotas.get(name)
        if quota is not None:
            quota.left(now)  # what it has filled until now, it has filled at the old rate
            quota.resize(limit, hold)
            return
        window, minute = self._settings.window, self._settings.minute
        if name == "per_day":
            window, minute = "fixed", minute * _DAY
        self._quotas[name] = make_quota(
            window, limit, hold, minute, self._start if window == "fixed" else now
        )

"""A limit of so many per minute, evenly paced: a bucket that fills with time."""

from collections.abc import Callable
from operator import attrgetter
from typing import Literal

from abreast.core.outcome import Usage
from abreast.limits.limit import Need, WaitingLine, is_positive

# Seconds; shorter waits get no timer. Below the resolution of a clock (1e-10 s after ten days of
# uptime) a timer could be due again at once, for ever. What is let through early reduces the level
# for those behind, so the error never adds up.
_MIN_WAIT = 1e-6


class Rate:
    """At most `count` requests (or tokens) in any `per` seconds, after a first `burst`.

    The need is reserved before a call and settled with the real usage after it. A need bigger than
    the whole bucket is let through alone when the bucket is full, and leaves a debt that is paid
    off before the next call.

        lanes={"openai": [Slots(8), Rate(600, per=60), Rate(90_000, per=60, of="tokens")]}

    Args:
        count: how many.
        per: in so many seconds.
        of: what is counted: `"requests"` or `"tokens"`.
        burst: how many may come at once; by default what fills in one second, and at least one:
            even pacing.
    """

    lent = False
    charged = True

    __slots__ = ("_at", "_cost", "_level", "burst", "count", "line", "of", "per")

    def __init__(
        self,
        count: float,
        per: float = 60.0,
        *,
        of: Literal["requests", "tokens"] = "requests",
        burst: float | None = None,
    ) -> None:
        if not is_positive(count) or not is_positive(per):
            raise ValueError(f"Rate needs a positive count and period, not {count!r} per {per!r} s")
        if of not in ("requests", "tokens"):
            raise ValueError(f"Rate counts 'requests' or 'tokens', not {of!r}")
        if burst is not None and not is_positive(burst):
            raise ValueError(f"Rate needs a positive burst, not {burst!r}")
        self.count = float(count)
        self.line = WaitingLine()
        self.per = float(per)
        self.of = of
        self.burst = max(1.0, count / per) if burst is None else float(burst)
        # The part of a need that counts here; it is read five times per call.
        self._cost: Callable[[Need], float] = attrgetter(of)
        self._level = self.burst
        self._at: float | None = None

    def __repr__(self) -> str:
        level = f"{self._level:.3g}/{self.burst:g} left"
        return f"<Rate {self.count:g} {self.of} per {self.per:g} s, {level}>"

    def refusal(self, need: Need, now: float) -> float | None:
        """None if the bucket holds enough, else the time when it will."""
        cost = self._cost(need)
        if cost <= self._level:  # it was enough when last computed, and only grows
            return None
        missing = min(cost, self.burst) - self._level_at(now)
        wait = missing * self.per / self.count
        return None if wait <= _MIN_WAIT else now + wait

    def take(self, need: Need, now: float) -> object:
        """Subtract the need; one bigger than the bucket leaves a debt."""
        self._level = self._level_at(now) - self._cost(need)
        self._at = now
        return None

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Refund what was reserved and not used, or charge what was used beyond it."""
        if self.of == "requests":
            return
        spent = self._cost(need) if used is None else used.input_tokens + used.output_tokens
        self._level = min(self.burst, self._level_at(now) + self._cost(need) - spent)
        self._at = now

    def _level_at(self, now: float) -> float:
        at = self._at
        if at is None:
            self._at = at = now
        level = self._level
        if now > at:
            level += (now - at) * self.count / self.per
        return level if level < self.burst else self.burst  # noqa: FURB136 - takes a third of the time of min()

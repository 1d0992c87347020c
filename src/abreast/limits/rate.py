"""So many per minute, paced evenly: a bucket that fills with time."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Literal

from abreast.core.outcome import Usage
from abreast.limits.limit import Need
from abreast.limits.queue import WaitingLine

# Seconds that are not worth a timer. Below the resolution of a clock (1e-10 s after ten days up) a
# timer could be due again at once, for ever. What is let through early is owed by those behind, so
# that the error never adds up.
_BLINK = 1e-6


class Rate:
    """At most `count` requests (or tokens) in any `per` seconds, after a first `burst`.

    Reserved before, settled with the real usage after. A need bigger than the whole bucket is let
    through alone when the bucket is full, and paid off before the next.

        lanes={"openai": [Slots(8), Rate(600, per=60), Rate(90_000, per=60, of="tokens")]}
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
        """`burst` defaults to one second's worth, and at least one: even pacing."""
        if not _positive(count) or not _positive(per):
            raise ValueError(f"Rate needs a positive count and period, not {count!r} per {per!r} s")
        if of not in ("requests", "tokens"):
            raise ValueError(f"Rate counts 'requests' or 'tokens', not {of!r}")
        if burst is not None and not _positive(burst):
            raise ValueError(f"Rate needs a positive burst, not {burst!r}")
        self.count = float(count)
        self.line = WaitingLine()
        self.per = float(per)
        self.of = of
        self.burst = max(1.0, count / per) if burst is None else float(burst)
        self._cost: Callable[[Need], float] = attrgetter(
            of
        )  # what a need has of it: asked five times a call
        self._level = self.burst
        self._at: float | None = None

    def __repr__(self) -> str:
        """Its numbers and its level when last looked at."""
        return f"<Rate {self.count:g} {self.of} per {self.per:g} s, {self._level:.3g}/{self.burst:g} left>"

    def refusal(self, need: Need, now: float) -> float | None:
        """None if the bucket holds enough, else the time when it will."""
        cost = self._cost(need)
        if cost <= self._level:  # it was enough when last looked at, and only grows
            return None
        lacking = min(cost, self.burst) - self._filled(now)
        wait = lacking * self.per / self.count
        return None if wait <= _BLINK else now + wait

    def take(self, need: Need, now: float) -> object:
        """Use up the need; an oversize one leaves a debt."""
        self._level = self._filled(now) - self._cost(need)
        self._at = now
        return None

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002
        """Refund what was reserved and not used, or charge what was used beyond it."""
        if self.of == "requests":
            return
        spent = self._cost(need) if used is None else used.input_tokens + used.output_tokens
        self._level = min(self.burst, self._filled(now) + self._cost(need) - spent)
        self._at = now

    def _filled(self, now: float) -> float:
        at = self._at
        if at is None:
            self._at = at = now
        level = self._level
        if now > at:
            level += (now - at) * self.count / self.per
        return level if level < self.burst else self.burst  # noqa: FURB136 - a comparison is a third of a call to min


def _positive(number: object) -> bool:
    return (
        not isinstance(number, bool)
        and isinstance(number, (int, float))
        and 0 < number < float("inf")
    )

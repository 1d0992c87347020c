"""What a lane could do instead.

A fixed number in flight, additive increase and multiplicative decrease, a plain pacer, and the
adaptive connections of inspect_ai, written anew from its published design.

Each waits after a rejection for as long as the server says, or a second, and sends again.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from math import inf

from abreast.limits.governor.governor import CallPermit, Costs, Dimension, Hit, WidthChange
from abreast.limits.governor.rate_estimate import HeaderFacts


class Static:
    """So many in flight, whatever happens."""

    def __init__(self, width: int, tick: float = 1.0) -> None:
        """`tick` is a second of the world."""
        self.width = float(width)
        self.tick = tick
        self._flying: set[int] = set()
        self._serial = 0
        self.hold = -inf

    def refusal(self, costs: Costs, now: float) -> float | None:  # noqa: ARG002 - the port passes them to all
        """None if there is room."""
        if now < self.hold:
            return self.hold
        return None if len(self._flying) + 1 <= self.width else inf

    def send(self, costs: Costs, now: float) -> CallPermit:
        """One call more is in flight."""
        self._serial += 1
        self._flying.add(self._serial)
        return CallPermit(self._serial, now, costs)

    def answered(
        self,
        permit: CallPermit,
        now: float,  # noqa: ARG002 - the port passes it to all
        used: Costs,  # noqa: ARG002 - the port passes it to all
        told: Mapping[Dimension, HeaderFacts],  # noqa: ARG002 - the port passes it to all
    ) -> None:
        """One call fewer is in flight."""
        self._flying.discard(permit.serial)

    def failed(self, permit: CallPermit, now: float) -> None:  # noqa: ARG002 - the port passes it to all
        """One call fewer is in flight."""
        self._flying.discard(permit.serial)

    def withdraw(self, permit: CallPermit) -> None:
        """One call fewer is in flight."""
        self._flying.discard(permit.serial)

    def listens(self, permit: CallPermit) -> bool:  # noqa: ARG002 - the port passes it to all
        """Every header is read."""
        return True

    def changes(self, cause: str) -> list[WidthChange]:  # noqa: ARG002 - the port passes it to all
        """Nobody reads what these decide."""
        return []

    def resolve(
        self,
        hit: Hit | None,
        permit: CallPermit,  # noqa: ARG002 - the port passes it to all
        told: Mapping[Dimension, HeaderFacts],  # noqa: ARG002 - the port passes it to all
        wait: float | None = None,  # noqa: ARG002 - the port passes it to all
    ) -> Hit:
        """What the server says, or the rate."""
        return hit or "requests"

    def held_until(self, hit: Hit) -> float:  # noqa: ARG002 - the port passes it to all
        """When the next may go."""
        return self.hold

    def rejected(
        self,
        permit: CallPermit,
        now: float,
        hit: Hit,
        wait: float | None,
        told: Mapping[Dimension, HeaderFacts],
    ) -> bool:
        """One less is, and nothing goes for a while."""
        del hit, told
        self._flying.discard(permit.serial)
        self.hold = max(self.hold, now + (self.tick if wait is None else wait))
        return True


class Aimd(Static):
    """One more in flight after each round without a rejection, half as many after one."""

    def __init__(self, tick: float = 1.0) -> None:
        """Start with four."""
        super().__init__(4, tick)
        self._cut_at = -inf

    def answered(
        self, permit: CallPermit, now: float, used: Costs, told: Mapping[Dimension, HeaderFacts]
    ) -> None:
        """Grow by one in a round."""
        super().answered(permit, now, used, told)
        self.width += 1 / self.width

    def rejected(
        self,
        permit: CallPermit,
        now: float,
        hit: Hit,
        wait: float | None,
        told: Mapping[Dimension, HeaderFacts],
    ) -> bool:
        """Halve, once for all that were sent before."""
        if permit.sent > self._cut_at:
            self.width = max(1.0, self.width / 2)
            self._cut_at = now
        return super().rejected(permit, now, hit, wait, told)


class Pacer(Static):
    """As fast as the limit in the headers says, evenly; four in flight until one is known."""

    def __init__(self, tick: float = 1.0) -> None:
        """Nothing is known yet."""
        super().__init__(4, tick)
        self._next: dict[Dimension, float] = {}
        self._rate: dict[Dimension, float] = {}

    def refusal(self, costs: Costs, now: float) -> float | None:
        """None if its turn has come."""
        due = max((self._next.get(name, -inf) for name in self._rate), default=-inf)
        return due if now < due else super().refusal(costs, now)

    def send(self, costs: Costs, now: float) -> CallPermit:
        """The next one goes after as long as this one takes of each rate."""
        for name, rate in self._rate.items():
            self._next[name] = max(now, self._next.get(name, now)) + costs.get(name, 0.0) / rate
        return super().send(costs, now)

    def answered(
        self, permit: CallPermit, now: float, used: Costs, told: Mapping[Dimension, HeaderFacts]
    ) -> None:
        """Take the limits from the headers."""
        super().answered(permit, now, used, told)
        for name, each in told.items():
            self._rate[name] = each.limit / (60 * self.tick)
            self.width = inf


class AdaptiveConnections(Static):
    """inspect_ai's way, from its design document: slow start, then 5% more after each clean round.

    From 10 to 100 in flight, 20 at first. A round is as many successes in a row as may be in
    flight, with 80% of them reached; it doubles the number before the first rejection. A rejection
    multiplies it by 0.8, once in 15 seconds. A rejected call keeps its place for three to six
    seconds, or as long as the server says.
    """

    _LEAST, _START, _MOST = 10, 20, 100
    _CUT, _GROWTH, _SATURATED = 0.8, 0.05, 0.8
    _COOLDOWN, _BACKOFF = 15.0, 4.5  # seconds

    def __init__(self, tick: float = 1.0) -> None:
        """Start with twenty."""
        super().__init__(self._START, tick)
        self._clean = 0
        self._peak = 0
        self._was_cut = False
        self._cools_until = -inf
        self._asleep: list[tuple[float, int]] = []  # places kept, until when

    def refusal(self, costs: Costs, now: float) -> float | None:
        """None if a place is free."""
        while self._asleep and self._asleep[0][0] <= now:
            self._flying.discard(heapq.heappop(self._asleep)[1])
        when = super().refusal(costs, now)
        return self._asleep[0][0] if when == inf and self._asleep else when

    def send(self, costs: Costs, now: float) -> CallPermit:
        """One call more is in flight."""
        permit = super().send(costs, now)
        self._peak = max(self._peak, len(self._flying))
        return permit

    def answered(
        self, permit: CallPermit, now: float, used: Costs, told: Mapping[Dimension, HeaderFacts]
    ) -> None:
        """Grow after a clean round."""
        super().answered(permit, now, used, told)
        if now < self._cools_until:
            return
        self._clean += 1
        if self._clean < max(self.width, 4):
            return
        if self._peak >= self._SATURATED * self.width:
            grown = (
                self.width + max(1, round(self.width * self._GROWTH))
                if self._was_cut
                else 2 * self.width
            )
            self.width = min(float(self._MOST), grown)
        self._clean, self._peak = 0, len(self._flying)

    def rejected(
        self,
        permit: CallPermit,
        now: float,
        hit: Hit,
        wait: float | None,
        told: Mapping[Dimension, HeaderFacts],
    ) -> bool:
        """Cut, and keep the place of the call until it is sent again."""
        del hit, told
        heapq.heappush(
            self._asleep, (now + max(self._BACKOFF * self.tick, wait or 0.0), permit.serial)
        )
        self._clean = 0
        if now >= self._cools_until:
            self._was_cut = True
            self.width = max(float(self._LEAST), float(int(self.width * self._CUT)))
            self._cools_until = now + self._COOLDOWN * self.tick
        return True

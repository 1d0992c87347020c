"""The lane of a model: its limits by number, and what its provider says about them."""

from __future__ import annotations

from collections.abc import Sequence

from abreast.core.errors import LaneParked, QuotaSpent, Throttled
from abreast.core.seeds import derive_fraction
from abreast.limits.hold import ServerHold
from abreast.limits.limit import Limit

_FIRST_HOLD = 1.0  # seconds after a 429 that names none; doubled with each episode until a call gets through
_LONGEST_HOLD = 60.0
_TOO_LONG = 3600.0  # seconds: a provider that asks for more means a quota, not a minute's limit


class Lane:
    """Limits shared by all models of one provider and account, in one process.

    A 429 holds the whole lane, once per episode: a call that was sent before the hold began says nothing new.
    """

    def __init__(self, name: str, limits: Sequence[Limit] = ()) -> None:
        """`limits` hold unless a run declares a lane of the same name."""
        self.name = name
        self.limits = tuple(limits)
        self.server = ServerHold()
        self.episode = 0
        self._tries = 0

    def __repr__(self) -> str:
        """Its name and limits."""
        return f"<Lane {self.name} {self.limits}>"

    def throttled(self, error: Throttled, sent_in: int, now: float) -> float:
        """Hold the lane after a 429 to a call that was sent in episode `sent_in`; for how many seconds."""
        fresh = sent_in == self.episode
        if fresh:
            self.episode += 1
            self._tries += 1
        after = error.retry_after
        if after is not None and after > _TOO_LONG:
            raise self.park(f"it asks to wait for {after / 3600:.1f} hours")
        if after is None:
            if not fresh:
                return max(0.0, self.server.until - now)
            after = min(_LONGEST_HOLD, _FIRST_HOLD * 2.0 ** min(self._tries - 1, 10))
            after *= 1.0 + 0.25 * derive_fraction(self.episode, self.name)
        self.server.hold(now + after)
        return after

    def got_through(self) -> None:
        """A call was answered: the next hold without a word from the server is short again."""
        self._tries = 0

    def park(self, why: QuotaSpent | str) -> LaneParked:
        """Close the lane for this process; the error to raise."""
        reason = f"{self.name} takes no more requests: {why}"
        self.server.park(reason)
        return LaneParked(reason)

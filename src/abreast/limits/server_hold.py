"""A provider's word that it wants no requests for a while, or none at all for now."""

from __future__ import annotations

from abreast.core.errors import LaneParked
from abreast.core.outcome import Usage
from abreast.limits.limit import Need
from abreast.limits.queue import WaitingLine

_NEVER = float("-inf")


class ServerHold:
    """Lets nothing through until a given time; parked, nothing at all.

    One for a lane, so that all its calls wait.

    A 429 holds the lane for as long as the server says. A quota that is used up parks it: what waits fails with
    `LaneParked`, and its run can be resumed later.
    """

    lent = False
    charged = True

    __slots__ = ("_returns", "line", "parked", "until")

    def __init__(self) -> None:
        """Open."""
        self.line = WaitingLine()
        self.until = _NEVER
        self.parked: str | None = None
        self._returns: float | None = None

    def __repr__(self) -> str:
        """Whether it lets anything through."""
        return f"<ServerHold {self.parked or f'until {self.until:g}'}>"

    def hold(self, until: float) -> None:
        """Let nothing through before that time; a later one stands."""
        self.until = max(self.until, until)

    def park(self, reason: str, returns: float | None = None) -> None:
        """Let nothing more through, or nothing before the time at which it `returns`."""
        self.parked, self._returns = reason, returns

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - the port passes both to all
        """None if it is open, else the time when it will be; `LaneParked` if nobody can say."""
        if self.parked is not None:
            if self._returns is None or now < self._returns:
                raise LaneParked(self.parked)
            self.parked = None
        return self.until if now < self.until else None

    def take(self, need: Need, now: float) -> object:
        """There is nothing to take."""

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:
        """There is nothing to give back."""

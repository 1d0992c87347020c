"""A limit that a provider's rejection closes for a time, or until its quota returns."""

from abreast.core.errors import LaneParked
from abreast.core.outcome import Usage
from abreast.limits.limit import Need, WaitingLine

_NO_HOLD = float("-inf")


class ServerHold:
    """Lets nothing through until a given time; parked, nothing at all.

    There is one for a lane, so that all calls of the lane wait.

    A 429 holds the lane for as long as the server says. A used-up quota parks it: waiting calls
    fail with `LaneParked`, and their run can be resumed later.
    """

    lent = False
    charged = True

    __slots__ = ("_reopens_at", "line", "parked", "until")

    def __init__(self) -> None:
        self.line = WaitingLine()
        self.until = _NO_HOLD
        self.parked: str | None = None
        self._reopens_at: float | None = None

    def __repr__(self) -> str:
        return f"<ServerHold {self.parked or f'until {self.until:g}'}>"

    def hold(self, until: float) -> None:
        """Let nothing through before that time; an earlier time than the present one is ignored."""
        self.until = max(self.until, until)

    def park(self, reason: str, returns: float | None = None) -> None:
        """Let nothing through, or nothing before the time `returns`."""
        self.parked, self._reopens_at = reason, returns

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - the port's signature
        """None if it is open, else the time when it will be; `LaneParked` if that is unknown."""
        if self.parked is not None:
            if self._reopens_at is None or now < self._reopens_at:
                raise LaneParked(self.parked)
            self.parked = None
        return self.until if now < self.until else None

    def take(self, need: Need, now: float) -> object:
        """Do nothing: there is nothing to take."""

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:
        """Do nothing: there is nothing to give back."""

"""A limit that a provider's rejection closes for a time, or until its quota returns.

After an outage it lets one call through at a time, until one is answered, and then more and more.
"""

from abreast.core.errors import LaneParked
from abreast.core.outcome import Usage
from abreast.limits.governor.slow_start import SlowStart
from abreast.limits.limit import WHENEVER, Need, WaitingLine

_NO_HOLD = float("-inf")
_PROBE = "probe"  # what a call is handed that goes alone
_FIRST_CALLS = 4.0  # in the time of the probe's answer, or a second; then twice as many
_SHORTEST_ANSWER = 0.05  # seconds
_SLOW_START_SECONDS = 10.0  # by then it is no limit any more


class ServerHold:
    """Lets nothing through until a given time; parked, nothing at all.

    There is one for a lane, so that all calls of the lane wait.

    A 429 holds the lane for as long as the server says. A used-up quota parks it: waiting calls
    fail with `LaneParked`, and their run can be resumed later. An outage holds it, and the first
    call afterwards is a probe that goes alone.
    """

    lent = False
    charged = True

    __slots__ = (
        "_is_probing",
        "_probe_is_out",
        "_probe_sent",
        "_reopens_at",
        "_slow_start",
        "_slow_until",
        "line",
        "parked",
        "until",
    )

    def __init__(self) -> None:
        self.line = WaitingLine()
        self.until = _NO_HOLD
        self.parked: str | None = None
        self._reopens_at: float | None = None
        self._is_probing = False
        self._probe_is_out = False
        self._probe_sent = _NO_HOLD
        self._slow_start: SlowStart | None = None
        self._slow_until = _NO_HOLD

    def __repr__(self) -> str:
        return f"<ServerHold {self.parked or f'until {self.until:g}'}>"

    def hold(self, until: float) -> None:
        """Let nothing through before that time; an earlier time than the present one is ignored."""
        self.until = max(self.until, until)

    def probe_at(self, until: float) -> None:
        """Let nothing through before that time, and then one call at a time until `release`."""
        self.hold(until)
        self._is_probing = True
        self._slow_start = None

    def release(self, now: float) -> None:
        """Let calls through again: a few, then more and more, as in a slow start."""
        self._is_probing = False
        self.until = _NO_HOLD
        took = min(1.0, max(now - self._probe_sent, _SHORTEST_ANSWER))
        self._slow_start = SlowStart(now, _FIRST_CALLS / took, doubling_time=took, second=1.0)
        self._slow_until = now + _SLOW_START_SECONDS

    def park(self, reason: str, returns: float | None = None) -> None:
        """Let nothing through, or nothing before the time `returns`."""
        self.parked, self._reopens_at = reason, returns

    @property
    def reopens_at(self) -> float | None:
        """When a parked lane opens again; None if that is unknown, or it is not parked."""
        return None if self.parked is None else self._reopens_at

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - the port's signature
        """None if it is open, else the time when it will be; `LaneParked` if that is unknown."""
        if self.parked is not None:
            if self._reopens_at is None or now < self._reopens_at:
                raise LaneParked(self.parked)
            self.parked = None
        if now < self.until:
            return self.until
        if self._is_probing:
            return WHENEVER if self._probe_is_out else None
        return None if self._slow_start is None else self._slow_start.due(now)

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - the port's signature
        """Record that a call goes; a probe is handed what `give` needs."""
        if self._is_probing:
            self._probe_is_out, self._probe_sent = True, now
            return _PROBE
        if self._slow_start is not None:
            if now < self._slow_until:
                self._slow_start.sent(now)
            else:
                self._slow_start = None
        return None

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Record that a call has ended: after a probe, the next one may go."""
        if handed is _PROBE:
            self._probe_is_out = False

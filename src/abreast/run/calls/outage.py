"""Outages: a provider that answers 503 or 529 holds its lane, and one call at a time tries it.

up --(three such answers in a row, or one with a Retry-After)--> held
held --(its time is over)--> one call probes
the probe is answered --> up, released by slow start
the probe gets such an answer too --> held for half as long again
down for longer than the lane's `outage` seconds --> the lane is parked
"""

from dataclasses import dataclass
from math import isfinite
from typing import Final

from abreast.core.errors import CallFailed, LaneParked, Unavailable
from abreast.core.events import Plain
from abreast.core.seeds import derive_fraction
from abreast.limits.server_hold import ServerHold
from abreast.models.lanes import DEFAULT_OUTAGE

ANSWERS_IN_A_ROW: Final = 3  # fewer, between replies, are single failures and hold only their call
FIRST_HOLD: Final = 1.0  # seconds; longer with each probe that fails, up to the longest
HOLD_GROWTH: Final = 1.5
LONGEST_HOLD: Final = 10.0
_FIRST_PAUSE: Final = 0.5  # seconds for which a single call waits, doubled likewise

Facts = dict[str, Plain | list[float]]  # a change of a limit, as the journal records it


@dataclass(slots=True, eq=False)
class CallOutage:
    """What one call has seen of an outage: since when, and how many answers."""

    since: float | None = None
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call is to wait: for so many seconds by itself (0 if its lane is held)."""

    seconds: float
    changes: tuple[Facts, ...] = ()


class LaneOutage:
    """Decides whether the provider of a lane is down, and how long its calls wait.

    Answers of an outage are no attempt of a call. An answer to a call that was sent before the
    present hold began (`sent_in` is an earlier `episode`) is no new information.
    """

    def __init__(self, lane: str, server: ServerHold, longest: float = DEFAULT_OUTAGE) -> None:
        """`longest` is in seconds; with 0, answers of an outage are ordinary failures."""
        self.episode = 0
        self._lane = lane
        self._server = server
        self._longest = longest
        self._was_reached = False  # at any time: a wrong address never is
        self._answers = 0  # in a row, without a reply in between
        self._last_answer = ""
        self._first_at = 0.0  # the first of these
        self._is_held = False
        self._holds = 0
        self._first_call: CallOutage | None = None
        self._several_calls = False

    def __repr__(self) -> str:
        return f"<LaneOutage of {self._lane}, {'held' if self._is_held else 'up'}>"

    @property
    def reason(self) -> str | None:
        """What the provider last answered, while it is down; None if it is up."""
        return self._last_answer if self._answers else None

    @property
    def longest(self) -> float:
        """Seconds that it may be down."""
        return self._longest

    def includes(self, error: CallFailed) -> bool:
        """Whether an error is a sign of an outage.

        A connection that can't be made is one only if there was one before: otherwise the address
        may be wrong.
        """
        if not self._longest:
            return False
        return isinstance(error, Unavailable) or (
            self._was_reached and error.unsent and bool(error.retryable)
        )

    def reached(self) -> None:
        """Record that a request was sent, whatever came of it."""
        self._was_reached = True

    def got_through(self, sent_in: int, now: float) -> None:
        """Record an answer that is no sign of an outage, to a call sent in that episode."""
        self._was_reached = True
        if sent_in != self.episode:
            return
        self._answers = 0
        if self._is_held:
            self._is_held = False
            self._holds = 0
            self._first_call, self._several_calls = None, False
            self._server.release(now)

    def begun(self, call: CallOutage, error: CallFailed, sent_in: int, now: float) -> Waiting:
        """Record an answer of an outage; returns how long to wait.

        Raises `LaneParked` if the lane has been down for too long, and the error itself, with the
        bound in its message, if that is so for this one call only.
        """
        call.since = now if call.since is None else call.since
        call.answers += 1
        is_new = sent_in == self.episode
        if not self._answers:
            self._first_at = now
        self._answers += 1
        self._last_answer = str(error)
        after = error.retry_after
        if not self._is_held and self._answers < ANSWERS_IN_A_ROW and after is None:
            if now - call.since >= self._longest:
                raise self._failed(error)
            return Waiting(self._pause(call))
        if self._first_call is None:
            self._first_call = call
        self._several_calls = self._several_calls or call is not self._first_call
        ends = self._first_at + self._longest
        if now >= ends:
            raise self._parked(error, now) if self._several_calls else self._failed(error)
        if self._is_held and not is_new and after is None:
            return Waiting(0.0)
        seconds = self._hold_seconds() if after is None or not isfinite(after) else after
        until = min(now + seconds, ends)
        self._server.probe_at(until)
        if self._is_held and not is_new:
            return Waiting(0.0)
        self.episode += 1
        self._holds += 1
        self._is_held = True
        facts: Facts = {
            "dimension": "outage",
            "old": None,
            "new": None,
            "cause": "connection" if error.status is None else str(error.status),
            "limit": "outage",
            "held": until - now,
        }
        return Waiting(0.0, (facts,))

    def _hold_seconds(self) -> float:
        longest = min(LONGEST_HOLD, FIRST_HOLD * HOLD_GROWTH ** min(self._holds, 10))
        return longest * (0.75 + 0.25 * derive_fraction(self.episode, self._lane))

    def _pause(self, call: CallOutage) -> float:
        longest = min(LONGEST_HOLD, _FIRST_PAUSE * 2.0 ** min(call.answers - 1, 10))
        return longest * (0.5 + 0.5 * derive_fraction(self._answers, self._lane))

    @property
    def _bound(self) -> str:
        return (
            f"{self._longest:g} s, which `outage = {self._longest:g}` under "
            f"[lanes.{self._lane}] in abreast.toml allows"
        )

    def _failed(self, error: CallFailed) -> CallFailed:
        failure = type(error)(
            f"{error}; it has been so for {self._bound}", status=error.status, raw=error.raw
        )
        failure.retry_after = error.retry_after
        return failure

    def _parked(self, error: CallFailed, now: float) -> LaneParked:
        """Close the lane; after the longest hold, another call may probe."""
        reason = f"{self._lane} takes no requests: {error}; it has been down for {self._bound}"
        self._server.park(reason, now + LONGEST_HOLD)
        return LaneParked(reason)

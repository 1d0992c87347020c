"""The requests that were sent for one cell, and how many requests each lane has in flight."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from abreast.jobs.matrix.rows import SubResult

End: TypeAlias = Literal["done", "throttled", "fault"]


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One request that was sent to the provider."""

    began: float
    ended: float
    end: End
    in_flight: int
    seconds: float


@dataclass(slots=True)
class CellNotes:
    """The requests of one cell, and its sub-results."""

    began: float
    attempts: list[CallAttempt] = field(default_factory=list)
    steps: list[SubResult] = field(default_factory=list)
    earlier: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the calls that an earlier driver recorded; these are not made again."""

    def times(self) -> dict[str, float]:
        """The seconds of the cell, by cause.

        They add up to `wall_s` if its calls were made one after the other.
        """
        found = {"queue_s": 0.0, "hold_s": 0.0, "backoff_s": 0.0, "service_s": 0.0, **self.earlier}
        before, cause = self.began, "queue_s"
        for one in sorted(self.attempts, key=lambda attempt: attempt.began):
            found[cause] += max(0.0, one.began - before)
            spent = max(0.0, one.ended - one.began)
            own = min(one.seconds, spent) if one.end == "done" else spent
            found[_CAUSE_DURING[one.end]] += own
            found["queue_s"] += spent - own
            before, cause = max(before, one.ended), _CAUSE_AFTER[one.end]
        return {**found, "wall_s": before - self.began + sum(self.earlier.values())}


_CAUSE_DURING: dict[End, str] = {"done": "service_s", "throttled": "hold_s", "fault": "backoff_s"}
_CAUSE_AFTER: dict[End, str] = {"done": "queue_s", "throttled": "hold_s", "fault": "backoff_s"}

NOTES: ContextVar[CellNotes | None] = ContextVar("abreast_matrix_notes", default=None)


@dataclass(slots=True)
class LaneCount:
    """How many requests of a lane are in flight, and were at most."""

    now: int = 0
    peak: int = 0
    throttled: int = 0

    def enter(self) -> int:
        """Count one more request in flight; return how many there are now."""
        self.now += 1
        self.peak = max(self.peak, self.now)
        return self.now

    def leave(self) -> None:
        """Count one request less in flight."""
        self.now -= 1


@runtime_checkable
class CountedModel(Protocol):
    """A model whose requests are counted on a lane."""

    lane: LaneCount

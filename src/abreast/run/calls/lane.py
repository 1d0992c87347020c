"""The lane of a model: its limits, by number or as they are found out, and what its provider says about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import LaneParked, QuotaSpent, Throttled
from abreast.core.events import Plain
from abreast.core.outcome import Usage
from abreast.core.seeds import derive_fraction
from abreast.limits.governor.governor import CallPermit, WidthChange
from abreast.limits.governor.limit import GovernorLimit
from abreast.limits.limit import Limit
from abreast.limits.queue import Hold
from abreast.limits.server_hold import ServerHold
from abreast.run.calls.rate_limit_headers import hit_by, told_by

if TYPE_CHECKING:
    from abreast.run.calls.learned_limits import LearnedLimits

_FIRST_HOLD = (
    1.0  # seconds after a 429 that names none; doubled with each episode until a call gets through
)
_LONGEST_HOLD = 60.0
_TOO_LONG = 3600.0  # seconds: a provider that asks for more means a quota, not a minute's limit

Facts = dict[str, Plain | list[float]]
"""A decision as the journal has it."""


class ModelLane:
    """Limits shared by all models of one provider and account, in one process.

    With a governor, the limits are found out, and a 429 holds only what was hit. Without, they are
    numbers, and a 429 holds the whole lane; once per episode: a call that was sent before the hold
    began says nothing new.
    """

    def __init__(
        self,
        name: str,
        limits: Sequence[Limit] = (),
        governed: GovernorLimit | None = None,
        profile: LearnedLimits | None = None,
        held: Sequence[Limit] = (),
    ) -> None:
        """`limits` and `governed` hold unless a run declares a lane of that name.

        `profile` keeps what is learned.

        Items of a run that declares just this lane hold `held`, or the `limits` that its calls hold
        too.
        """
        self.name = name
        self.limits = tuple(limits)
        self.governed = governed
        self.every = self.limits if governed is None else (governed, *self.limits)
        """What each call asks for.

        Items hold `limits` alone: of a governor, only a call can say what became of it.
        """
        self.held = tuple(held) or self.limits
        self._profile = profile
        self.server = ServerHold()
        self.episode = 0
        self._tries = 0
        self._has_learned = False

    def __repr__(self) -> str:
        """Its name and limits."""
        return f"<Lane {self.name} {self.governed or self.limits}>"

    def permit_in(self, holds: Sequence[Hold]) -> CallPermit | None:
        """The governor's permit, if one is held."""
        if self.governed is not None:
            for hold in holds:
                if hold.limit is self.governed:
                    return hold.handed if isinstance(hold.handed, CallPermit) else None
        return None

    def answered(
        self, permit: CallPermit, used: Usage, headers: Mapping[str, str] | None, now: float
    ) -> list[Facts]:
        """A call got through: what the governor decided on that."""
        if self.governed is None:
            return []
        told = told_by(headers) if self.governed.governor.listens(permit) else {}
        changes = self.governed.answered(permit, now, used, told)
        self._has_learned = self._has_learned or bool(changes)
        return [_facts(change) for change in changes]

    def rejected(self, permit: CallPermit, error: Throttled, now: float) -> list[Facts]:
        """A call was turned away: what the governor decided on that; nothing if it is no news."""
        after = error.retry_after
        if after is not None and after > _TOO_LONG:
            raise self.park(f"it asks to wait for {after / 3600:.1f} hours", after, now)
        if self.governed is None:
            return []
        told = told_by(getattr(error, "headers", None))
        hit = hit_by(error.limit, told)
        changes = self.governed.rejected(permit, now, hit, after, told)
        if changes is None:
            return []
        held: Facts = {"limit": hit, "held": max(0.0, self.governed.governor.held_until(hit) - now)}
        return [
            _facts(change) | held for change in changes or [WidthChange(hit, None, None, "429")]
        ]

    def throttled(self, error: Throttled, sent_in: int, now: float) -> list[Facts]:
        """Hold the lane, if it has no governor, after a 429 to a call that was sent in episode `sent_in`."""
        fresh = sent_in == self.episode
        if fresh:
            self.episode += 1
            self._tries += 1
        after = error.retry_after
        if after is not None and after > _TOO_LONG:
            raise self.park(f"it asks to wait for {after / 3600:.1f} hours", after, now)
        if after is None:
            if not fresh:
                return []
            after = min(_LONGEST_HOLD, _FIRST_HOLD * 2.0 ** min(self._tries - 1, 10))
            after *= 1.0 + 0.25 * derive_fraction(self.episode, self.name)
        self.server.hold(now + after)
        hit = error.limit or "requests"
        facts: Facts = {
            "dimension": hit,
            "old": None,
            "new": None,
            "cause": "429",
            "limit": hit,
            "held": after,
        }
        return [facts] if fresh else []

    def got_through(self) -> None:
        """A call was answered: the next hold without a word from the server is short again."""
        self._tries = 0

    def keep(self) -> None:
        """Write down what was learned, if anything was."""
        if self._profile is not None and self.governed is not None and self._has_learned:
            self._has_learned = False
            self._profile.write(self.governed.governor.known())

    def park(self, why: QuotaSpent | str, after: float | None, now: float) -> LaneParked:
        """Close the lane, for as long as its provider says or for this process.

        The error to raise.
        """
        reason = f"{self.name} takes no more requests: {why}"
        if after is not None:
            until = datetime.fromtimestamp(SYSTEM_CLOCK.wall() + after, UTC)
            reason += f"; it takes more after {until:%Y-%m-%d %H:%M} UTC, in {_spoken(after)}"
        self.server.park(reason, None if after is None else now + after)
        return LaneParked(reason)


def _facts(change: WidthChange) -> Facts:
    return {
        "dimension": change.dimension,
        "old": change.old,
        "new": change.new,
        "cause": change.cause,
    }


def _spoken(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(seconds / 60))} minutes"

"""The lane of a model: its limits, fixed or learned, and the reaction to a provider's 429.

A provider's limits are read from the headers of its replies, in one common form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import LaneParked, QuotaSpent, Throttled
from abreast.core.outcome import Usage
from abreast.core.seeds import derive_fraction
from abreast.limits.governor.governor import (
    CallPermit,
    Dimension,
    GovernorLimit,
    Hit,
    LimitHeaders,
    WidthChange,
)
from abreast.limits.governor.rate_estimate import HeaderFacts
from abreast.limits.limit import Hold, Limit
from abreast.limits.server_hold import ServerHold
from abreast.models.lanes import DEFAULT_OUTAGE
from abreast.models.providers.errors import seconds_of
from abreast.run.calls.learned_limits import LearnedLimits
from abreast.run.calls.outage import Facts, LaneOutage

if TYPE_CHECKING:
    from abreast.limits.shared.ledger import Terms

# Seconds to hold the lane after a 429 without a retry-after. Doubled with each further episode
# until a call succeeds, up to the longest.
FIRST_HOLD = 1.0
LONGEST_HOLD = 60.0
SHORTEST_WAIT = 60.0  # seconds to wait for the end of a limit
QUOTA_RETRY_AFTER = 3600.0  # seconds; a longer retry-after means a quota, not a rate per minute


class ModelLane:
    """Limits shared by all models of one provider and account, in one process.

    With a governor the limits are learned, and a 429 holds only the limit that it names. Without
    one they are fixed numbers, and a 429 holds the whole lane, once per episode: a 429 to a call
    that was sent before the hold began is no new information.
    """

    def __init__(
        self,
        name: str,
        limits: Sequence[Limit] = (),
        governed: GovernorLimit | None = None,
        profile: LearnedLimits | None = None,
        held: Sequence[Limit] = (),
        *,
        terms: Terms | None = None,
        outage: float = DEFAULT_OUTAGE,
    ) -> None:
        """`limits` and `governed` apply unless a run declares a lane of that name.

        `profile` stores what the governor learned. Items of a run that declares just this lane
        hold `held`; by default the `limits`, which its calls hold too. With `terms` the limits
        are those that all drivers share whose runs are in the same store. `outage` is how many
        seconds the provider may be down before the lane is parked.
        """
        self.name = name
        self.limits = tuple(limits)
        self.governed = governed
        # What each call asks for. Items hold `limits` alone: a governor learns from the results of
        # calls only.
        self.every = self.limits if governed is None else (governed, *self.limits)
        self.held = tuple(held) or self.limits
        self.terms = terms
        self._learned_limits = profile
        self.server = ServerHold()
        self.outage = LaneOutage(name, self.server, outage)
        # With it, a limit whose end is known holds the lane until then, and does not park it; it is
        # called with the reason.
        self.tell_wait: Callable[[str], None] | None = None
        self.episode = 0
        self._holds_in_a_row = 0  # without a call that succeeded in between
        self._has_learned = False

    def __repr__(self) -> str:
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
        """Report a successful call to the governor; returns the changes it made."""
        if self.governed is None:
            return []
        header_limits = limits_in_headers(headers) if self.governed.governor.listens(permit) else {}
        changes = self.governed.answered(permit, now, used, header_limits)
        self._has_learned = self._has_learned or bool(changes)
        return [_facts(change) for change in changes]

    def rejected(self, permit: CallPermit, error: Throttled, now: float) -> list[Facts]:
        """Report a 429 to the governor; returns the changes it made."""
        after = error.retry_after
        if after is not None and after > QUOTA_RETRY_AFTER:
            raise self.park(f"it asks to wait for {after / 3600:.1f} hours", after, now)
        if self.governed is None:
            return []
        header_limits = limits_in_headers(error.headers)
        named = rejected_limit(error.limit, header_limits) if error.limit else None
        hit = self.governed.governor.resolve(named, permit, header_limits, after)
        changes = self.governed.rejected(permit, now, hit, after, header_limits)
        if changes is None:
            return []
        held: Facts = {"limit": hit, "held": max(0.0, self.governed.governor.held_until(hit) - now)}
        return [
            _facts(change) | held for change in changes or [WidthChange(hit, None, None, "429")]
        ]

    def throttled(self, error: Throttled, sent_in: int, now: float) -> list[Facts]:
        """Hold a lane without a governor after a 429 to a call sent in episode `sent_in`."""
        is_new = sent_in == self.episode
        if is_new:
            self.episode += 1
            self._holds_in_a_row += 1
        after = error.retry_after
        if after is not None and after > QUOTA_RETRY_AFTER:
            why = f"it asks to wait for {after / 3600:.1f} hours"
            if self.tell_wait is None:
                raise self.park(why, after, now)
            return self.wait_out(why, after, now)
        if after is None:
            if not is_new:
                return []
            after = min(LONGEST_HOLD, FIRST_HOLD * 2.0 ** min(self._holds_in_a_row - 1, 10))
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
        return [facts] if is_new else []

    @property
    def closed_until(self) -> float:
        """The time before which no call goes; it may be past. What it waits for may take longer."""
        if self.governed is None:
            return self.server.until
        return max(self.server.until, self.governed.governor.held_until("requests"))

    def got_through(self) -> None:
        """A call succeeded: the next hold without a retry-after is short again."""
        self._holds_in_a_row = 0

    def keep(self) -> None:
        """Write the learned limits to disk, if any were learned since the last time."""
        if self._learned_limits is not None and self.governed is not None and self._has_learned:
            self._has_learned = False
            self._learned_limits.write(self.governed.governor.known())

    def park(self, why: QuotaSpent | str, after: float | None, now: float) -> LaneParked:
        """Close the lane for `after` seconds, or for the life of this process.

        Returns the error to raise.
        """
        reason = self._closed(why, after)
        self.server.park(reason, None if after is None else now + after)
        return LaneParked(reason)

    def wait_out(self, why: QuotaSpent | str, after: float, now: float) -> list[Facts]:
        """Hold the lane until a limit has ended; returns the change, none if it was held already.

        A limit that should have ended by now is given a minute.
        """
        after = max(after, SHORTEST_WAIT)
        is_new = now + after > self.server.until + SHORTEST_WAIT
        self.server.hold(now + after)
        if not is_new:
            return []
        if self.tell_wait is not None:
            self.tell_wait(self._closed(why, after))
        return [{"dimension": "quota", "old": None, "new": 0, "cause": "quota", "held": after}]

    def _closed(self, why: QuotaSpent | str, after: float | None) -> str:
        """Why the lane takes no requests, and until when."""
        reason = f"{self.name} takes no more requests: {why}"
        if after is None:
            return reason
        until = datetime.fromtimestamp(SYSTEM_CLOCK.wall() + after, UTC)
        hours = after / 3600
        spell = f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(after / 60))} minutes"
        return f"{reason}; it takes more after {until:%Y-%m-%d %H:%M} UTC, in {spell}"


def _facts(change: WidthChange) -> Facts:
    return {
        "dimension": change.dimension,
        "old": change.old,
        "new": change.new,
        "cause": change.cause,
    }


# --- what headers say

_OPENAI: Final[tuple[Dimension, ...]] = ("requests", "tokens")
_ANTHROPIC: Final[Mapping[Dimension, str]] = {
    "requests": "requests",
    "tokens": "tokens",
    "input": "input-tokens",
    "output": "output-tokens",
}
_HEADER_NAMES: Final[list[tuple[Dimension, str, str, str]]] = [
    (
        name,
        f"x-ratelimit-limit-{name}",
        f"x-ratelimit-remaining-{name}",
        f"x-ratelimit-reset-{name}",
    )
    for name in _OPENAI
] + [
    (
        name,
        f"anthropic-ratelimit-{word}-limit",
        f"anthropic-ratelimit-{word}-remaining",
        f"anthropic-ratelimit-{word}-reset",
    )
    for name, word in _ANTHROPIC.items()
]
_NO_LIMITS: Final[LimitHeaders] = {}


def limits_in_headers(headers: Mapping[str, str] | None) -> LimitHeaders:
    """The limits that the headers report, by dimension; what can't be parsed is left out.

    >>> limits_in_headers({
    ...     "x-ratelimit-limit-requests": "600",
    ...     "x-ratelimit-remaining-requests": "599",
    ...     "x-ratelimit-reset-requests": "100ms",
    ... })
    {'requests': HeaderFacts(limit=600.0, left=599.0, reset=0.1)}
    """
    if not headers:
        return _NO_LIMITS
    found: dict[Dimension, HeaderFacts] = {}
    for name, limit, left, reset in _HEADER_NAMES:
        if limit in headers:
            facts = _parse(headers[limit], headers.get(left), headers.get(reset))
            if facts is not None:
                found[name] = facts
    return found


def _parse(limit: str, left: str | None, reset: str | None) -> HeaderFacts | None:
    try:
        facts = HeaderFacts(
            float(limit), float(left or ""), _reset_seconds(reset) if reset else 0.0
        )
    except ValueError:
        return None
    return facts if facts.limit > 0 and isfinite(facts.limit) and isfinite(facts.left) else None


def _reset_seconds(text: str) -> float:
    """Seconds until the reset.

    A time in whole seconds was rounded up by up to one second. Taken literally, it would make the
    estimate of what is left too high, so a second is subtracted.
    """
    seconds = seconds_of(text) or 0.0
    return max(0.0, seconds - 1.0) if "T" in text and "." not in text else seconds


def rejected_limit(limit: str, header_limits: LimitHeaders) -> Hit:
    """The limit that a 429 was about.

    If input and output tokens are counted apart, the one of which a smaller part is left.
    """
    if limit == "concurrency":
        return "concurrency"
    if limit != "tokens":
        return "requests"
    if "tokens" not in header_limits:
        parts: list[Dimension] = [name for name in ("input", "output") if name in header_limits]
        if parts:
            return min(parts, key=lambda name: header_limits[name].left / header_limits[name].limit)
    return "tokens"

"""The governor of a lane: how many calls may be in flight, and how fast they may be sent.

Its decisions are pure functions of (state, now): it reads no clock and sends nothing. The caller
asks before each call, and reports what was sent, answered and rejected. A call needs room in every
gate: the number in flight, and each rate. The first call goes alone. A call that was not rejected
within a second counts as accepted, however long its answer takes.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from abreast.core.outcome import Usage
from abreast.limits.governor.concurrency_search import ConcurrencySearch
from abreast.limits.governor.rate_estimate import (
    HEADER_INTERVAL,
    OVERTAKING,
    HeaderFacts,
    RateEstimate,
)
from abreast.limits.governor.sent_calls import SentCall
from abreast.limits.limit import Need, WaitingLine

Dimension: TypeAlias = Literal["requests", "tokens", "input", "output"]
Hit: TypeAlias = Literal["requests", "tokens", "input", "output", "concurrency"]
Costs: TypeAlias = Mapping[Dimension, float]
LimitHeaders: TypeAlias = Mapping[Dimension, HeaderFacts]

CONCURRENCY: Literal["concurrency"] = "concurrency"
_FIRST_CALL_TIMEOUT = 4.0  # seconds to wait for the first call, before others follow it
_FEWER = 0.7  # of the calls accepted at once: if fewer are too many, headers are wrong
_COMPARED = 6  # rejections that name no limit
_REMEMBERED = 600  # accepted calls, to compare them with
_LARGE = 2.0  # times the largest accepted call: a larger one is too large itself
_BY_CHANCE = 0.02  # of lanes whose rejections seem to be about the number in flight, and are not
_REPORTED_GROWTH = 0.1  # smaller relative growth of the number in flight is not reported


class CallPermit(NamedTuple):
    """A call that was sent: its serial number, when, and what it was expected to take.

    `beside` is how many others were in flight then.
    """

    serial: int
    sent: float
    costs: Costs
    beside: int = 0


class WidthChange(NamedTuple):
    """A decision: what was allowed before and what is allowed now; None for unknown."""

    dimension: Hit
    old: float | None
    new: float | None
    cause: str


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """What is known of a lane before its first call, as accepted in an earlier run.

    `flying` is the number in flight, `rates` are per minute.
    """

    flying: int | None = None
    rates: Costs = field(default_factory=dict)


class Governor:
    """The limits of one lane, as they are learned.

    The steps of one call:

        when = governor.refusal(costs, now)         # None: send it
        permit = governor.send(costs, now)
        governor.answered(permit, now, used, told)  # or rejected, failed, withdraw
    """

    def __init__(
        self,
        *,
        minute: float = 60.0,
        start: int = 4,
        cap: int | None = None,
        rates: Costs | None = None,
        known: KnownLimits | None = None,
    ) -> None:
        """`cap` and `rates` (per minute) are the user's, and are never exceeded.

        `minute` is the length of the server's minute in seconds.
        """
        self._minute = minute
        self._second = minute / 60
        self._start = start
        known = known or KnownLimits()
        self.paces: dict[Dimension, RateEstimate] = {
            "requests": RateEstimate(minute),
            "tokens": RateEstimate(minute, even=False),
        }
        # What the user allows counts calls that are sent, also those that are rejected.
        self._allowed = {
            name: RateEstimate(minute, rate, even=False) for name, rate in (rates or {}).items()
        }
        self.search = ConcurrencySearch(start, cap, known.flying)
        for name, rate in known.rates.items():
            self._rate_estimate(name).expect(rate)
        self._gates = (*self.paces.items(), *self._allowed.items())
        self._flying: dict[int, CallPermit] = {}
        self._undecided: dict[int, CallPermit] = {}  # may still be rejected; the oldest first
        self._serial = 0
        # Calls that were rejected, by their input; and calls in flight that were rejected before.
        self._to_retry: dict[float, tuple[int, ...]] = {}
        self._retries: dict[int, tuple[int, ...]] = {}
        self._unnamed_is_rate = False  # rejections that name no limit have proved to be of a rate
        self._unnamed_is_flying = False  # or of the number in flight
        self._unnamed: list[CallPermit] = []  # the last of them; one for each herd
        self._accepted: deque[CallPermit] = deque(maxlen=_REMEMBERED)
        self._unnamed_up_to = 0
        self._waits: set[float | None] = set()  # that they asked for
        self._headers_read_at = -inf
        self._first_accepted = known.flying is not None
        self._reported: dict[Hit, float | None] = {CONCURRENCY: float(self.search.limit)}

    def __repr__(self) -> str:
        return f"<Governor {len(self._flying)}/{self.search.limit} in flight>"

    def refusal(self, costs: Costs, now: float) -> float | None:
        """None if a call may go now, else the time when it might; infinite if an answer decides."""
        self._accept_unrejected(now)
        later = now
        for name, estimate in self._gates:
            when = estimate.refusal(costs.get(name, 0.0), now)
            if when is not None and when > later:
                later = when
        later = max(later, self.search.hold)
        if later > now:
            return later
        if self.search.has_room(len(self._flying), now):
            return None
        if not self._undecided and self.search.try_one_more():
            return None
        for permit in self._undecided.values():
            return max(permit.sent + self._decision_time, now + 1e-9)
        return inf

    def send(self, costs: Costs, now: float) -> CallPermit:
        """Record that a call is sent and return its permit."""
        self._serial += 1
        permit = CallPermit(self._serial, now, costs, len(self._flying))
        if self._to_retry:
            before = self._to_retry.pop(_size_of(costs), None)
            if before is not None:
                self._retries[permit.serial] = before
        for name, estimate in self._gates:
            estimate.send(self._serial, costs.get(name, 0.0), now)
        self._flying[permit.serial] = self._undecided[permit.serial] = permit
        self.search.sent(len(self._flying))
        return permit

    def answered(self, permit: CallPermit, now: float, used: Costs, told: LimitHeaders) -> None:
        """Record an answer: what the call took, and what its headers said."""
        for name in told:
            self._rate_estimate(name)
        self._settle(permit, used)
        for serial in self._retries.pop(permit.serial, ()):
            for name, cost in used.items():
                if name in self.paces:
                    self.paces[name].settle_rejected(serial, cost)
        if told:
            self._headers_read_at = permit.sent
        for name, facts in told.items():
            if self._is_per_minute(facts):
                self._rate_estimate(name).update_from_header(facts, permit.serial, permit.sent)
        self.failed(permit, now)

    def _settle(self, permit: CallPermit, used: Costs) -> None:
        for name, cost in used.items():
            for estimates in (self.paces, self._allowed):
                if name in estimates:
                    estimates[name].settle(permit.serial, cost)

    def listens(self, permit: CallPermit) -> bool:
        """Whether the headers of its answer can say anything new.

        Reading them takes longer than everything else here.
        """
        return permit.sent >= self._headers_read_at + HEADER_INTERVAL * self._second

    def failed(self, permit: CallPermit, now: float) -> None:
        """Record that a call was accepted by the server, and failed."""
        self._retries.pop(permit.serial, None)
        self._flying.pop(permit.serial, None)
        if self._undecided.pop(permit.serial, None) is not None:
            self._accept(permit, now)

    def withdraw(self, permit: CallPermit) -> None:
        """Record that a call was not sent, or that the server's decision will never be known."""
        self._flying.pop(permit.serial, None)
        self._retries.pop(permit.serial, None)
        if self._undecided.pop(permit.serial, None) is not None:
            for _, estimate in self._gates:
                estimate.settle(permit.serial, 0.0)

    def rejected(
        self, permit: CallPermit, now: float, hit: Hit, wait: float | None, told: LimitHeaders
    ) -> bool:
        """Record a rejection: at what, and the server's wait; return whether that is news."""
        self._to_retry[_size_of(permit.costs)] = (
            *self._retries.pop(permit.serial, ()),
            permit.serial,
        )
        if len(self._to_retry) > _REMEMBERED:
            del self._to_retry[next(iter(self._to_retry))]
        self._flying.pop(permit.serial, None)
        self._undecided.pop(permit.serial, None)
        news = False
        if hit != CONCURRENCY:
            self._rate_estimate(hit)
        for name, facts in told.items():
            if self._is_per_minute(facts):
                self._rate_estimate(name).update_limit(facts.limit, permit.serial)
        for name, estimate in self.paces.items():
            if name == hit:
                call = SentCall(permit.serial, permit.sent, permit.costs.get(name, 0.0))
                news = estimate.reject(call, now, wait, told.get(name))
            else:
                estimate.settle(permit.serial, 0.0)
                estimate.passed(permit.sent)
        if hit == CONCURRENCY:
            news = self.search.reject(
                permit.serial,
                self._serial,
                permit.beside,
                (now, wait, self._second),
                left=len(self._flying),
            )
        return news

    def resolve(
        self,
        hit: Hit | None,
        permit: CallPermit,
        told: LimitHeaders,
        wait: float | None = None,
    ) -> Hit:
        """Which limit a rejection was about, if it does not say so or headers contradict it.

        The one of which headers show too little. If they show enough of all, or if there are none,
        a rate if the server asks for a wait, else the number in flight; but a call that is rejected
        beside fewer others than were accepted before was sent too soon.
        """
        permit = self._with_overtaking(permit)
        missing: list[Dimension] = [
            name for name, facts in told.items() if facts.left < permit.costs.get(name, 0.0)
        ]
        if hit is not None:
            is_wrong = hit != CONCURRENCY and hit in told and hit not in missing
            right = [name for name in missing if self._rate_estimate(name).trusted]
            return right[0] if is_wrong and right else hit
        if missing or self._is_large(permit):
            return missing[0] if missing else "tokens"
        return self._rate_or_flying(permit, told, wait)

    def _rate_or_flying(
        self, permit: CallPermit, told: LimitHeaders, wait: float | None
    ) -> Literal["requests", "concurrency"]:
        """Whether a rejection without a name, beside which headers show enough, is of a rate.

        Servers know how long a rate takes, and not how long a call does: if the waits that they
        ask for differ, or if only some rejections have one, that tells them apart.
        """
        self._waits.add(wait)
        if len(self._waits) > 1:
            return CONCURRENCY if wait is None else "requests"
        accepted = self.search.accepts(permit.beside, permit.serial)
        if (
            (wait is None or self._has_room(permit, told))
            and any(self._rate_estimate(name).trusted for name in told)
            and not (accepted and permit.beside < _FEWER * self.search.limit)
        ):
            return CONCURRENCY
        if self._is_about_flying(permit) or (self._unnamed_is_flying and not accepted):
            return CONCURRENCY
        if self._unnamed_is_rate or accepted or wait is not None:
            if not self._unnamed_is_rate:
                self._unnamed_is_rate, self._unnamed_is_flying = True, False
                self.search.forgive()
            return "requests"
        return CONCURRENCY

    def _is_large(self, permit: CallPermit) -> bool:
        """Whether a call is much larger than all that were accepted, which are several."""
        accepted = [each.costs.get("tokens", 0.0) for each in self._accepted]
        size = permit.costs.get("tokens", 0.0)
        return len(accepted) >= _COMPARED and size > _LARGE * max(accepted)

    def _has_room(self, permit: CallPermit, told: LimitHeaders) -> bool:
        """Whether headers that have proved right so far show clearly enough for a call."""
        return all(
            self._rate_estimate(name).has_clear_room(permit.serial, permit.sent, facts)
            for name, facts in told.items()
        )

    def _with_overtaking(self, permit: CallPermit) -> CallPermit:
        """The call, beside those too that were sent a moment later: they may have come before."""
        later = 0
        for each in reversed(self._flying.values()):
            if each.serial <= permit.serial:
                break
            later += each.sent <= permit.sent + OVERTAKING * self._second
        return permit._replace(beside=permit.beside + later)

    def _is_about_flying(self, permit: CallPermit) -> bool:
        """Whether rejections without a name came only while many calls were in flight.

        If they were about a rate, they would have come at any time: it must be unlikely that all of
        them came beside so many. What was learned of the rate by them is forgotten then.
        """
        if permit.serial <= self._unnamed_up_to:
            return False
        self._unnamed_up_to = self._serial
        self._unnamed = [*self._unnamed, permit][-_COMPARED:]
        if not any(
            self._chance(self._unnamed[at:]) <= _BY_CHANCE for at in range(len(self._unnamed) - 1)
        ):
            return False
        self._unnamed.clear()
        self._unnamed_is_rate, self._unnamed_is_flying = False, True
        self.paces["requests"] = RateEstimate(self._minute).remember(self.paces["requests"], 1.0)
        self._gates = (*self.paces.items(), *self._allowed.items())
        return True

    def _chance(self, rejected: Sequence[CallPermit]) -> float:
        """How likely it is that all of them came beside so many, as calls between them were not."""
        least = min(permit.beside for permit in rejected)
        accepted = [each.beside for each in self._accepted if each.serial > rejected[0].serial]
        as_many = sum(beside >= least for beside in accepted)
        share: float = (as_many + 1) / (len(accepted) + 1)
        return share ** len(rejected)

    def held_until(self, hit: Hit) -> float:
        """The time when the next call may go, as far as that gate is concerned."""
        return self.search.hold if hit == CONCURRENCY else self._rate_estimate(hit).hold

    # --- what was decided

    def changes(self, cause: str) -> list[WidthChange]:
        """What has changed since the last call of this; small growth is reported only in sum."""
        changed: list[WidthChange] = []
        limit, reported = float(self.search.limit), self._reported[CONCURRENCY] or 1.0
        if limit < reported or limit >= reported + max(1.0, _REPORTED_GROWTH * reported):
            changed.append(
                WidthChange(CONCURRENCY, reported, limit, cause if limit < reported else "room")
            )
            self._reported[CONCURRENCY] = limit
        for name, estimate in self.paces.items():
            rate, before = estimate.per_minute, self._reported.get(name)
            if rate is not None and (before is None or abs(rate - before) > 0.01 * before):
                changed.append(WidthChange(name, before, rate, cause))
                self._reported[name] = rate
        return changed

    def known(self) -> KnownLimits:
        """What was learned, for a later run."""
        rates = {
            name: rate
            for name, estimate in self.paces.items()
            if (rate := estimate.per_minute) is not None
        }
        return KnownLimits(self.search.proven, rates)

    # --- internals

    def _is_per_minute(self, header: HeaderFacts) -> bool:
        """Whether a header is about a minute.

        Some providers send the limits of a day in headers of the same name: their reset lasts for
        more than a minute.
        """
        return header.reset <= 1.5 * self._minute

    def _rate_estimate(self, name: Dimension) -> RateEstimate:
        if name not in self.paces:  # most providers don't count input and output separately
            estimate = self.paces[name] = RateEstimate(self._minute, even=False)
            permits = (*self._accepted, *self._flying.values())
            tokens = sum(each.costs.get("tokens", 0.0) for each in permits)
            if tokens:
                share = sum(each.costs.get(name, 0.0) for each in permits) / tokens
                estimate.remember(self.paces["tokens"], share)
            for each in permits:
                estimate.settle(each.serial, each.costs.get(name, 0.0))
            self._gates = (*self.paces.items(), *self._allowed.items())
        return self.paces[name]

    @property
    def _decision_time(self) -> float:
        return self._second if self._first_accepted else _FIRST_CALL_TIMEOUT * self._second

    def _accept_unrejected(self, now: float) -> None:
        """Accept the calls that were not rejected within a second."""
        while self._undecided:
            serial, permit = next(iter(self._undecided.items()))
            if permit.sent + self._decision_time > now:
                return
            del self._undecided[serial]
            self._accept(permit, now)

    def _accept(self, permit: CallPermit, now: float) -> None:
        ended = permit.serial not in self._flying
        self._accepted.append(permit)
        self.search.accept(permit.serial, permit.sent, permit.beside, ended=ended)
        for estimate in self.paces.values():
            estimate.passed(permit.sent)
            if not self._first_accepted:
                took = max(now - permit.sent, 0.05 * self._second)
                # If answers take long, rejections do too: then the speed grows slowly.
                doubling_time = (
                    min(6 * self._second, max(took / 4, min(1.5 * self._second, 2 * took)))
                    if ended
                    else 6 * self._second
                )
                estimate.start(now, self._start / min(self._second, took), doubling_time)
        self._first_accepted = True


class GovernorLimit:
    """Lets calls through as a governor decides.

    Each call that it let through must be reported as `answered` or `rejected` before it is given
    back. A call given back without a report counts as accepted by the server and failed, or, if it
    used no request, as never sent.
    """

    lent = False
    charged = True

    __slots__ = ("governor", "line")

    def __init__(self, governor: Governor) -> None:
        self.governor = governor
        self.line = WaitingLine()

    def __repr__(self) -> str:
        return f"<Governed {self.governor!r}>"

    def refusal(self, need: Need, now: float) -> float | None:
        """None if a call may go now, else the time when it might."""
        return self.governor.refusal(_costs(need), now)

    def take(self, need: Need, now: float) -> object:
        """Record that a call is sent and return its permit."""
        return self.governor.send(_costs(need), now)

    def answered(
        self, permit: CallPermit, now: float, used: Usage, told: LimitHeaders
    ) -> list[WidthChange]:
        """Report an answer: what the call used, and what its headers said.

        Returns what the governor has changed since the last report.
        """
        total, output = used.input_tokens + used.output_tokens, used.output_tokens
        if used.estimate and not total:
            self.governor.answered(permit, now, {}, told)
        else:
            costs: Costs = {"tokens": total, "input": used.input_tokens, "output": output}
            self.governor.answered(permit, now, costs, told)
        return self.governor.changes("header" if told else "room")

    def rejected(
        self, permit: CallPermit, now: float, hit: Hit, wait: float | None, told: LimitHeaders
    ) -> list[WidthChange] | None:
        """Report a rejection: which limit was hit, and the wait if the server gave one.

        None if the governor knew already.
        """
        news = self.governor.rejected(permit, now, hit, wait, told)
        changes = self.governor.changes("429")
        return changes if news else None

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Report a call that was neither answered nor rejected."""
        if isinstance(handed, CallPermit):
            if used is not None and not used.requests:
                self.governor.withdraw(handed)
            else:
                self.governor.failed(handed, now)


def _size_of(costs: Costs) -> float:
    """What is known of a call before it is answered: a retry of it has the same."""
    return costs.get("input", costs.get("tokens", 1.0))


def _costs(need: Need) -> Costs:
    return {
        "requests": 1.0,
        "tokens": need.tokens,
        "input": need.tokens - need.output,
        "output": need.output,
    }

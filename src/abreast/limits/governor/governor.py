"""The governor of a lane: how many calls may be in flight, and how fast they may go.

Pure decisions of (state, now).

It asks no clock and sends nothing: whoever does tells it what was sent, answered and turned away,
and asks before each call. A call needs every gate: the number in flight, and each rate. The first
call goes alone, as a scout; who was not turned away within a second was let in, however long the
answer takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from abreast.limits.governor.concurrency_search import ConcurrencySearch
from abreast.limits.governor.rate_estimate import OFTEN, HeaderFacts, RateEstimate
from abreast.limits.governor.sent_calls import SentCall

Dimension: TypeAlias = Literal["requests", "tokens", "input", "output"]
Hit: TypeAlias = Literal["requests", "tokens", "input", "output", "concurrency"]
Costs: TypeAlias = Mapping[Dimension, float]
Tellings: TypeAlias = Mapping[Dimension, HeaderFacts]

CONCURRENCY: Literal["concurrency"] = "concurrency"
_SCOUT = 4.0  # seconds that the first call is waited for, before others follow it
_WORTH_TELLING = (
    0.1  # a number in flight that grew by less is no decision that anybody wants to read
)


class CallPermit(NamedTuple):
    """A call that was sent: the how-manieth, when, and what it was thought to take."""

    serial: int
    sent: float
    costs: Costs


class WidthChange(NamedTuple):
    """A decision: what was allowed of something before, and is now; None for what nobody knows."""

    dimension: Hit
    old: float | None
    new: float | None
    cause: str


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """What is known of a lane before its first call: so many in flight were let in, and so much in a minute."""

    flying: int | None = None
    rates: Costs = field(default_factory=dict)


class Governor:
    """The limits of one lane, as they are found out.

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
        """`cap` and `rates` (in a minute) are the user's, and never passed.

        `minute` is how long one lasts.
        """
        self._minute = minute
        self._tick = minute / 60
        self._start = start
        known = known or KnownLimits()
        self.paces: dict[Dimension, RateEstimate] = {
            "requests": RateEstimate(minute),
            "tokens": RateEstimate(minute, even=False),
        }
        # What the user allows is for calls that are sent, whatever becomes of them.
        self._allowed = {
            name: RateEstimate(minute, rate, even=False) for name, rate in (rates or {}).items()
        }
        self.search = ConcurrencySearch(start, cap, known.flying)
        for name, rate in known.rates.items():
            self._pace(name).expect(rate)
        self._gates = (*self.paces.items(), *self._allowed.items())
        self._flying: dict[int, CallPermit] = {}
        self._unsure: dict[int, CallPermit] = {}  # may still be turned away; the oldest first
        self._serial = 0
        self._heard = -inf
        self._begun = known.flying is not None
        self._noted: dict[Hit, float | None] = {CONCURRENCY: float(self.search.limit)}

    def __repr__(self) -> str:
        """How many are in flight, of how many."""
        return f"<Governor {len(self._flying)}/{self.search.limit} in flight>"

    def refusal(self, costs: Costs, now: float) -> float | None:
        """None if a call may go now, else when it might; infinite if only an answer can tell."""
        self._look(now)
        later = now
        for name, pace in self._gates:
            when = pace.refusal(costs.get(name, 0.0), now)
            if when is not None and when > later:
                later = when
        later = max(later, self.search.hold)
        if later > now:
            return later
        if self.search.has_room(len(self._flying), now):
            return None
        for permit in self._unsure.values():
            return max(permit.sent + self._patience, now + 1e-9)
        return inf

    def send(self, costs: Costs, now: float) -> CallPermit:
        """A call goes out."""
        self._serial += 1
        permit = CallPermit(self._serial, now, costs)
        for name, pace in self._gates:
            pace.send(self._serial, costs.get(name, 0.0), now)
        self._flying[permit.serial] = self._unsure[permit.serial] = permit
        self.search.sent(len(self._flying))
        return permit

    def answered(self, permit: CallPermit, now: float, used: Costs, told: Tellings) -> None:
        """It was answered: what it took, and what its headers told."""
        for name, cost in used.items():
            if name in self.paces:
                self.paces[name].settle(permit.serial, cost)
            if name in self._allowed:
                self._allowed[name].settle(permit.serial, cost)
        if told:
            self._heard = permit.sent
        for name, each in told.items():
            if self._is_of_minute(each):
                self._pace(name).tell(each, permit.serial, permit.sent)
        self.failed(permit, now)

    def listens(self, permit: CallPermit) -> bool:
        """Whether its headers can tell anything new.

        Reading them takes longer than all else here.
        """
        return permit.sent >= self._heard + OFTEN * self._tick

    def failed(self, permit: CallPermit, now: float) -> None:
        """It was let in, and came to nothing."""
        self._flying.pop(permit.serial, None)
        if self._unsure.pop(permit.serial, None) is not None:
            self._let_in(permit, now)

    def withdraw(self, permit: CallPermit) -> None:
        """It was not sent after all, or nobody will ever know what the server thought of it."""
        self._flying.pop(permit.serial, None)
        if self._unsure.pop(permit.serial, None) is not None:
            for _, pace in self._gates:
                pace.settle(permit.serial, 0.0)

    def rejected(
        self, permit: CallPermit, now: float, hit: Hit, wait: float | None, told: Tellings
    ) -> bool:
        """It was turned away: at what, for how long if the server says so; whether that is news."""
        self._flying.pop(permit.serial, None)
        self._unsure.pop(permit.serial, None)
        news = False
        if hit != CONCURRENCY:
            self._pace(hit)
        for name, each in told.items():
            if self._is_of_minute(each):
                self._pace(name).tell_limit(each.limit)
        for name, pace in self.paces.items():
            if name == hit:
                call = SentCall(permit.serial, permit.sent, permit.costs.get(name, 0.0))
                news = pace.reject(call, now, wait, told.get(name))
            else:
                pace.settle(permit.serial, 0.0)
                pace.passed(permit.sent)
        if hit == CONCURRENCY:
            news = self.search.reject(
                permit.serial, self._serial, len(self._flying), (now, wait, self._tick)
            )
        return news

    def held_until(self, hit: Hit) -> float:
        """When the next call may go, as far as that gate is concerned."""
        return self.search.hold if hit == CONCURRENCY else self._pace(hit).hold

    # --- what was decided

    def changes(self, cause: str) -> list[WidthChange]:
        """What is allowed otherwise than when this was last asked.

        Growth in small steps is told now and then.
        """
        changed: list[WidthChange] = []
        limit, noted = float(self.search.limit), self._noted[CONCURRENCY] or 1.0
        if limit < noted or limit >= noted + max(1.0, _WORTH_TELLING * noted):
            changed.append(
                WidthChange(CONCURRENCY, noted, limit, cause if limit < noted else "room")
            )
            self._noted[CONCURRENCY] = limit
        for name, pace in self.paces.items():
            rate, before = pace.in_a_minute, self._noted.get(name)
            if rate is not None and (before is None or abs(rate - before) > 0.01 * before):
                changed.append(WidthChange(name, before, rate, cause))
                self._noted[name] = rate
        return changed

    def known(self) -> KnownLimits:
        """What was found out, for another time."""
        rates = {
            name: rate
            for name, pace in self.paces.items()
            if (rate := pace.in_a_minute) is not None
        }
        return KnownLimits(self.search.proven, rates)

    # ---

    def _is_of_minute(self, told: HeaderFacts) -> bool:
        """Some providers tell in the same words what there is in a day: it would last for more than a minute."""
        return told.reset <= 1.5 * self._minute

    def _pace(self, name: Dimension) -> RateEstimate:
        if name not in self.paces:  # most providers don't count input and output apart
            self.paces[name] = RateEstimate(self._minute, even=False)
            self._gates = (*self.paces.items(), *self._allowed.items())
        return self.paces[name]

    @property
    def _patience(self) -> float:
        return self._tick if self._begun else _SCOUT * self._tick

    def _look(self, now: float) -> None:
        """Who was not turned away within a second was let in."""
        while self._unsure:
            serial, permit = next(iter(self._unsure.items()))
            if permit.sent + self._patience > now:
                return
            del self._unsure[serial]
            self._let_in(permit, now)

    def _let_in(self, permit: CallPermit, now: float) -> None:
        ended = permit.serial not in self._flying
        self.search.accept(permit.sent, ended=ended)
        for pace in self.paces.values():
            pace.passed(permit.sent)
            if not self._begun:
                took = max(now - permit.sent, 0.1 * self._tick)
                # Where answers take long, so do complaints: then it goes faster only slowly.
                beat = (
                    self._tick * min(6.0, max(1.0, took / self._tick / 4))
                    if ended
                    else 6 * self._tick
                )
                pace.start(now, self._start / min(self._tick, took), beat)
        self._begun = True

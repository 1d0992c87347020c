"""The governor of a lane: how many calls may be in flight, and how fast they may go. Pure decisions of (state, now).

It asks no clock and sends nothing: whoever does tells it what was sent, answered and turned away, and asks before each
call. A call needs every gate: the number in flight, and each rate. The first call goes alone, as a scout; who was not
turned away within a second was let in, however long the answer takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

from abreast.limits.pace import Pace, Told
from abreast.limits.search import Search
from abreast.limits.sent import Entry

Dimension: TypeAlias = Literal["requests", "tokens"]
Hit: TypeAlias = Literal["requests", "tokens", "concurrency"]
Costs: TypeAlias = Mapping[Dimension, float]

_SCOUT = 4.0  # seconds that the first call is waited for, before others follow it


@dataclass(frozen=True, slots=True)
class Permit:
    """A call that was sent: the how-manieth, when, and what it was thought to take."""

    serial: int
    sent: float
    costs: Costs


class Governor:
    """The limits of one lane, as they are found out.

    when = governor.refusal(costs, now)         # None: send it
    permit = governor.send(costs, now)
    governor.answered(permit, now, used, told)  # or rejected, or failed
    """

    def __init__(
        self, *, minute: float = 60.0, start: int = 4, cap: int | None = None, rates: Costs | None = None
    ) -> None:
        """`cap` and `rates` (in a minute) are the user's, and never passed; `minute` is how long one lasts."""
        self._tick = minute / 60
        self.paces: dict[Dimension, Pace] = {"requests": Pace(minute), "tokens": Pace(minute, even=False)}
        # What the user allows is for calls that are sent, whatever becomes of them.
        self._allowed = {name: Pace(minute, rate, even=False) for name, rate in (rates or {}).items()}
        self.search = Search(start, cap)
        self._flying: dict[int, Permit] = {}
        self._unsure: dict[int, Permit] = {}  # may still be turned away; the oldest first
        self._serial = 0
        self._begun = False

    def refusal(self, costs: Costs, now: float) -> float | None:
        """None if a call may go now, else when it might; infinite if only an answer can tell."""
        self._look(now)
        later = now
        for name, pace in (*self.paces.items(), *self._allowed.items()):
            when = pace.refusal(costs.get(name, 0.0), now)
            if when is not None:
                later = max(later, when)
        if later > now:
            return later
        if self.search.has_room(len(self._flying), now):
            return None
        for permit in self._unsure.values():
            return max(permit.sent + self._patience, now + 1e-9)
        return inf

    def send(self, costs: Costs, now: float) -> Permit:
        """A call goes out."""
        self._serial += 1
        permit = Permit(self._serial, now, dict(costs))
        for name, pace in (*self.paces.items(), *self._allowed.items()):
            pace.send(self._serial, costs.get(name, 0.0), now)
        self._flying[permit.serial] = self._unsure[permit.serial] = permit
        return permit

    def answered(self, permit: Permit, now: float, used: Costs, told: Mapping[Dimension, Told]) -> None:
        """It was answered: what it took, and what its headers told."""
        for name, pace in self.paces.items():
            if name in used:
                pace.settle(permit.serial, used[name])
                if name in self._allowed:
                    self._allowed[name].settle(permit.serial, used[name])
            if name in told:
                pace.tell(told[name], permit.serial, permit.sent)
        self.failed(permit, now)

    def failed(self, permit: Permit, now: float) -> None:
        """It was let in, and came to nothing."""
        self._flying.pop(permit.serial, None)
        if self._unsure.pop(permit.serial, None) is not None:
            self._let_in(permit, now)

    def rejected(
        self, permit: Permit, now: float, hit: Hit, wait: float | None, told: Mapping[Dimension, Told]
    ) -> bool:
        """It was turned away: at what, for how long if the server says so; whether that is news."""
        self._flying.pop(permit.serial, None)
        self._unsure.pop(permit.serial, None)
        news = False
        for name, pace in self.paces.items():
            if name in told:
                pace.tell_limit(told[name].limit)
            if name == hit:
                call = Entry(permit.serial, permit.sent, permit.costs.get(name, 0.0))
                news = pace.reject(call, now, wait, told.get(name))
            else:
                pace.settle(permit.serial, 0.0)
                pace.passed(permit.sent)
        if hit == "concurrency":
            news = self.search.reject(permit.serial, self._serial, len(self._flying))
        return news

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

    def _let_in(self, permit: Permit, now: float) -> None:
        self.search.accept(permit.sent, ended=permit.serial not in self._flying)
        for pace in self.paces.values():
            pace.passed(permit.sent)
            if not self._begun:
                pace.start(now)
        self._begun = True

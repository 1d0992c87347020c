"""A lane in virtual time.

A limiter, the storm's own state machine, and the time that a perfect one would need.

Nothing waits and nothing is random: the same world, calls and limiter give the same result on every
machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, Protocol

from abreast.limits.governor.governor import CallPermit, Costs, Dimension, Hit
from abreast.limits.governor.rate_estimate import HeaderFacts
from abreast.models.providers.errors import seconds_of
from abreast.testing.storm.limits.limits import cost_of
from abreast.testing.storm.settings import Settings
from abreast.testing.storm.world import StormVerdict, World, WorldRequest

TRIP = 0.02  # seconds to the server and back
_HITS: dict[str, Hit] = {"concurrency": "concurrency", "rpm": "requests"}
_TOO_MANY = 429
_NAMES: tuple[Dimension, ...] = ("requests", "tokens")


class Limiter(Protocol):
    """What decides when a call goes out; `abreast.limits.governor.governor` says more."""

    def refusal(self, costs: Costs, now: float) -> float | None:
        """None if a call may go now, else when it might."""

    def send(self, costs: Costs, now: float) -> CallPermit:
        """A call goes out."""

    def answered(
        self, permit: CallPermit, now: float, used: Costs, told: Mapping[Dimension, HeaderFacts]
    ) -> None:
        """It was answered."""

    def failed(self, permit: CallPermit, now: float) -> None:
        """It came to nothing."""

    def withdraw(self, permit: CallPermit) -> None:
        """It was not sent, or nothing is known of it."""

    def resolve(
        self,
        hit: Hit | None,
        permit: CallPermit,
        told: Mapping[Dimension, HeaderFacts],
        wait: float | None = None,
    ) -> Hit:
        """Which limit a rejection was about."""

    def rejected(
        self,
        permit: CallPermit,
        now: float,
        hit: Hit,
        wait: float | None,
        told: Mapping[Dimension, HeaderFacts],
    ) -> bool:
        """It was turned away."""


@dataclass(frozen=True, slots=True)
class Score:
    """How a limiter did.

    Its time and the best one, the share of requests that were turned away, calls not done.
    """

    seconds: float
    best: float
    rejected: float
    lost: int
    sent: int = 0

    @property
    def utilisation(self) -> float:
        """The best time as a share of the limiter's."""
        return self.best / self.seconds if self.lost == 0 else 0.0


def play(
    settings: Settings,
    calls: Sequence[WorldRequest],
    make: Callable[[Settings], Limiter],
    *,
    seed: int = 0,
    cut: float = 8,
) -> Score:
    """Let a limiter send all calls to a world; it is cut off at `cut` times the best time."""
    best = best_time(settings, calls, seed)
    lane = StormLane(World(settings, seed), list(reversed(calls)), make(settings))
    lane.run(cut * best)
    rejected = lane.rejected / max(1, lane.sent)
    return Score(lane.ended, best, rejected, len(calls) - lane.done, lane.sent)


def best_time(settings: Settings, calls: Sequence[WorldRequest], seed: int = 0) -> float:
    """The time of who knows everything.

    Each call goes, in its order, when the server would take it.
    """
    return best_run(settings, calls, seed)[0]


def best_run(
    settings: Settings, calls: Sequence[WorldRequest], seed: int = 0
) -> tuple[float, World]:
    """The same, and the world with its log."""
    world = World(settings, seed)
    trip = TRIP * settings.scale
    now, last = trip / 2, 0.0
    flying: list[tuple[float, int]] = []
    for call in calls:
        while wait := _wait(world, call, now, flying):
            now = flying[0][0] if wait == inf else now + wait + 1e-9
        verdict = world.arrive(now, call)
        if verdict.admitted:
            heapq.heappush(flying, (now + verdict.latency, verdict.id))
            last = max(last, now + verdict.latency)
    return last + trip / 2, world


def _wait(world: World, call: WorldRequest, now: float, flying: list[tuple[float, int]]) -> float:
    while flying and flying[0][0] <= now:
        ended, number = heapq.heappop(flying)
        world.finish(ended, number)
    return world.wait(now, cost_of(call.input_tokens, call.output_tokens or 0))


class StormLane:
    """One play: events by their time."""

    def __init__(self, world: World, line: list[WorldRequest], limiter: Limiter) -> None:
        self.world = world
        self._line = line
        self._limiter = limiter
        self._trip = TRIP * world.settings.scale
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._woken = -inf
        self._reply = 20.0  # tokens, on the average so far
        self.done = self.sent = self.rejected = 0
        self.ended = 0.0

    def run(self, until: float) -> None:
        """Go on until all is done, or that time has come."""
        self._at(0.0, self._nothing)
        while self._events:
            now, _, call, args = heapq.heappop(self._events)
            if now > until:
                return
            call(now, *args)
            self._admit(now)

    def _at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), call, args))

    def _nothing(self, now: float) -> None:
        """Only look whether a call may go."""

    def _admit(self, now: float) -> None:
        while self._line:
            call = self._line[-1]
            costs: Costs = {"requests": 1.0, "tokens": call.input_tokens + self._reply}
            when = self._limiter.refusal(costs, now)
            if when is not None:
                if when < inf and (self._woken <= now or when < self._woken):
                    self._woken = when
                    self._at(when, self._nothing)
                return
            self._line.pop()
            self.sent += 1
            self._at(now + self._trip / 2, self._arrive, self._limiter.send(costs, now), call)

    def _arrive(self, now: float, permit: CallPermit, call: WorldRequest) -> None:
        verdict = self.world.arrive(now, call)
        if verdict.admitted:
            self._at(now + verdict.latency, self._finish, permit, call, verdict)
        else:
            self._at(now + self._trip / 2, self._turned_away, permit, call, verdict)

    def _finish(
        self, now: float, permit: CallPermit, call: WorldRequest, verdict: StormVerdict
    ) -> None:
        self.world.finish(now, verdict.id)
        self._at(now + self._trip / 2, self._answered, permit, call, verdict)

    def _answered(
        self, now: float, permit: CallPermit, call: WorldRequest, verdict: StormVerdict
    ) -> None:
        if verdict.fault is not None:
            self._limiter.failed(permit, now)
            self._line.append(call)
            return
        self.done += 1
        self.ended = now
        self._reply += 0.05 * (verdict.output_tokens - self._reply)
        used: Costs = {"requests": 1.0, "tokens": verdict.input_tokens + verdict.output_tokens}
        self._limiter.answered(permit, now, used, told_by(verdict.headers or {}))

    def _turned_away(
        self, now: float, permit: CallPermit, call: WorldRequest, verdict: StormVerdict
    ) -> None:
        self._line.append(call)
        if verdict.status != _TOO_MANY:
            self._limiter.failed(permit, now)
            return
        self.rejected += 1
        wait = None if verdict.retry_after is None else seconds_of(verdict.retry_after)
        hit = _HITS.get(verdict.kind, "tokens")
        self._limiter.rejected(permit, now, hit, wait, told_by(verdict.headers or {}))


def told_by(headers: Mapping[str, str]) -> dict[Dimension, HeaderFacts]:
    """What the headers say of each rate."""
    told: dict[Dimension, HeaderFacts] = {}
    for name in _NAMES:
        limit = headers.get(f"x-ratelimit-limit-{name}")
        if limit is not None:
            left = float(headers[f"x-ratelimit-remaining-{name}"])
            told[name] = HeaderFacts(
                float(limit), left, seconds_of(headers[f"x-ratelimit-reset-{name}"]) or 0.0
            )
    return told

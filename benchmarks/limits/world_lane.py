"""A limiter in a random world, in virtual time: a client sends the calls as the limiter decides.

The client is that of a run: a 429 puts the call back at the head of the line, a 500 does so after a
backoff, and a 503 is an outage, which is waited out in the same way whatever the limiter.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Any

from abreast.core.errors import Unavailable
from abreast.limits.governor.governor import CallPermit, Costs
from abreast.limits.limit import Need
from abreast.limits.server_hold import ServerHold
from abreast.run.calls.outage import CallOutage, LaneOutage
from benchmarks.limits.random_worlds import RandomCall, RandomWorld
from benchmarks.limits.virtual import Limiter
from benchmarks.limits.world_server import TRIP, TRIP_NOISE, ServerReply, WorldServer, costs_of

_FIRST_BACKOFF = 0.5  # seconds at most after the first 500 of a call, then twice as long
_OK, _TOO_MANY, _DOWN = 200, 429, 503


@dataclass(frozen=True, slots=True)
class WorldScore:
    """How a limiter did: its seconds and the best possible, requests sent and rejected, calls lost.

    Calls are lost if they were not done when the limiter was cut off.
    """

    seconds: float
    best: float
    calls: int
    lost: int
    sent: int
    rejected: int
    times: tuple[float, ...] = field(default=(), repr=False)
    """When calls were admitted by the server."""
    rejections: tuple[float, ...] = field(default=(), repr=False)

    @property
    def share(self) -> float:
        """The best time as a share of the limiter's; of what was cut off, the work done by then."""
        return self.best / self.seconds * (1 - self.lost / self.calls)

    def without_times(self) -> WorldScore:
        """The numbers alone."""
        return replace(self, times=(), rejections=())

    @property
    def rejected_share(self) -> float:
        """The share of requests that were answered with 429."""
        return self.rejected / max(1, self.sent)


@dataclass(slots=True, eq=False)
class _LaneCall:
    call: RandomCall
    admitted: int = 0
    outage: CallOutage = field(default_factory=CallOutage)


class WorldLane:
    """One run of a limiter in a world: events in the order of their times."""

    def __init__(self, world: RandomWorld, limiter: Limiter) -> None:
        self._server = WorldServer(world)
        self._limiter = limiter
        self._line = [_LaneCall(call) for call in reversed(world.calls)]
        self._random = random.Random(world.seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._wakes_at = inf
        self._output_tokens = 100.0  # on the average so far
        self._hold = ServerHold()
        self._outage = LaneOutage("world", self._hold, 1e9)
        self.done = self.sent = self.rejected = 0
        self.ended = 0.0
        self.times: list[float] = []
        self.rejections: list[float] = []

    def run(self, until: float) -> None:
        """Send all calls, or as many as are done by that time."""
        self._wake_at(0.0)
        while self._events:
            now, _, act, args = heapq.heappop(self._events)
            if now > until:
                self.ended = until
                return
            act(now, *args)
            self._send_calls(now)

    def _at(self, when: float, act: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), act, args))

    def _wake_at(self, when: float) -> None:
        if when < self._wakes_at:
            self._wakes_at = when
            self._at(when, self._wake)

    def _wake(self, now: float) -> None:
        if now >= self._wakes_at:
            self._wakes_at = inf

    def _trip(self) -> float:
        return TRIP + TRIP_NOISE * self._random.random()

    def _send_calls(self, now: float) -> None:
        while self._line:
            call = self._line[-1].call
            output = self._output_tokens
            costs: Costs = {
                "requests": 1.0,
                "tokens": call.input_tokens + output,
                "input": call.input_tokens,
                "output": output,
            }
            need = Need()
            when = self._hold.refusal(need, now)
            if when is None:
                when = self._limiter.refusal(costs, now)
            if when is not None:
                if when < inf:
                    self._wake_at(max(when, now + 1e-9))
                return
            entry = self._line.pop()
            handed = self._hold.take(need, now)
            permit = self._limiter.send(costs, now)
            self.sent += 1
            self._at(
                now + self._trip(), self._arrive, entry, permit, (handed, self._outage.episode)
            )

    def _arrive(
        self, now: float, entry: _LaneCall, permit: CallPermit, hold: tuple[object, int]
    ) -> None:
        reply = self._server.arrive(now, entry.call, entry.admitted)
        if reply.status == _TOO_MANY:
            self.rejected += 1
            self.rejections.append(now)
        elif reply.status != _DOWN:
            entry.admitted += 1
            self.times.append(now)
            self._at(now + reply.latency, self._leave)
        self._at(now + reply.latency + self._trip(), self._replied, entry, permit, hold, reply)

    def _leave(self, now: float) -> None:  # noqa: ARG002 - every event has a time
        self._server.leave()

    def _replied(
        self,
        now: float,
        entry: _LaneCall,
        permit: CallPermit,
        hold: tuple[object, int],
        reply: ServerReply,
    ) -> None:
        handed, episode = hold
        if reply.status == _DOWN:
            waiting = self._outage.begun(
                entry.outage, Unavailable("down", status=503), episode, now
            )
            self._limiter.withdraw(permit)
            self._at(now + waiting.seconds, self._return, entry)
        elif reply.status == _OK:
            self._outage.got_through(episode, now)
            self.done += 1
            self.ended = now
            self._output_tokens += 0.05 * (entry.call.output_tokens - self._output_tokens)
            self._limiter.answered(permit, now, costs_of(entry.call), reply.headers)
        elif reply.status == _TOO_MANY:
            self._outage.got_through(episode, now)
            hit = self._limiter.resolve(reply.hit, permit, reply.headers, reply.wait)
            self._limiter.rejected(permit, now, hit, reply.wait, reply.headers)
            self._line.append(entry)
        else:
            self._outage.reached()
            self._limiter.failed(permit, now)
            backoff = _FIRST_BACKOFF * 2 ** min(entry.admitted - 1, 6) * self._random.random()
            self._at(now + backoff, self._return, entry)
        self._hold.give(Need(), handed, None, now)

    def _return(self, now: float, entry: _LaneCall) -> None:  # noqa: ARG002 - every event has a time
        self._line.append(entry)


def play_world(world: RandomWorld, limiter: Limiter, best: float, *, cut: float = 10) -> WorldScore:
    """Let a limiter send the calls of a world; it is cut off at `cut` times the best time."""
    lane = WorldLane(world, limiter)
    lane.run(cut * best)
    calls = len(world.calls)
    return WorldScore(
        lane.ended,
        best,
        calls,
        calls - lane.done,
        lane.sent,
        lane.rejected,
        tuple(lane.times),
        tuple(lane.rejections),
    )

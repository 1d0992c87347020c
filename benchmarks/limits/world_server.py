"""The provider of a random world as a pure state machine, and the best time with full knowledge."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from math import ceil, floor, inf
from typing import NamedTuple

from abreast.limits.governor.governor import Dimension, Hit
from abreast.limits.governor.rate_estimate import HeaderFacts
from abreast.testing.storm.limits.limits import Bucket, Fixed, Quota, Sliding
from benchmarks.limits.random_worlds import MINUTE, RandomCall, RandomWorld

HeaderLimits = Mapping[Dimension, HeaderFacts]
DIMENSIONS: tuple[Dimension, ...] = ("requests", "tokens", "input", "output")
TRIP = 0.02  # seconds from the client to the server, and back: at least so many each
TRIP_NOISE = 0.03  # seconds: up to so many more, so that calls arrive in another order
_NO_LIMITS: HeaderLimits = {}


class ServerReply(NamedTuple):
    """What a server does with a request.

    Status 200 and 500 come after `latency` seconds, 429 and 503 at once. `hit` is the limit that a
    429 names, None if it names none, and `wait` its Retry-After.
    """

    status: int
    latency: float = 0.0
    headers: HeaderLimits = _NO_LIMITS
    hit: Hit | None = None
    wait: float | None = None


class WorldServer:
    """Exact limits; it reads no clock, and its times never go back."""

    def __init__(self, world: RandomWorld) -> None:
        self._world = world
        self._changes = list(reversed(world.changes))
        self._factor, self._share = 1.0, 0.0
        self._flying = 0
        self._replies = 0
        self._past: deque[tuple[float, HeaderLimits]] = deque()
        self._quotas: dict[Dimension, Quota] = {
            name: self._quota(*self._limits(name)) for name in DIMENSIONS if name in world.rates
        }

    def _limits(self, name: Dimension) -> tuple[float, float]:
        """What a minute allows, and what a full bucket holds."""
        world = self._world
        limit = world.rates[name] * self._factor * (1 - self._share)
        least = 1.0 if name == "requests" else 0.0
        return limit, max(least, world.bursts.get(name, limit))

    def _quota(self, limit: float, hold: float) -> Quota:
        if self._world.window == "fixed":
            return Fixed(limit, MINUTE, -self._world.phase)
        if self._world.window == "sliding":
            return Sliding(limit, MINUTE)
        return Bucket(limit, hold, MINUTE, 0.0)

    def arrive(self, now: float, call: RandomCall, attempt: int) -> ServerReply:
        """A request comes in; `attempt` counts those of this call that were admitted before."""
        self._advance(now)
        if self._is_down(now):
            return ServerReply(503)
        costs = costs_of(call)
        hit, wait = self._blocking_limit(costs, now)
        if hit is not None:
            headers = self._headers(now)
            return ServerReply(
                429,
                0.0,
                headers,
                hit if self._world.names_limit else None,
                self._retry_after(hit, wait, headers, now),
            )
        for name, quota in self._quotas.items():
            quota.take(costs[name], now)
        self._flying += 1
        status = 500 if attempt < call.faults else 200
        return ServerReply(status, call.latency, self._headers(now) if status == 200 else {})

    def leave(self) -> None:
        """A request that was admitted has ended."""
        self._flying -= 1

    def next_chance(self, now: float, call: RandomCall) -> float:
        """When the call would be admitted if nothing else came; infinite if one must end first."""
        self._advance(now)
        if self._is_down(now):
            return self._world.outage[1] if self._world.outage else now
        hit, wait = self._blocking_limit(costs_of(call), now)
        if hit is None:
            return now
        changes = self._changes[-1].at if self._changes else inf
        return min(now + wait, changes)

    def _advance(self, now: float) -> None:
        while self._changes and self._changes[-1].at <= now:
            change = self._changes.pop()
            self._factor, self._share = change.factor, change.share
            for name, quota in self._quotas.items():
                quota.left(change.at)  # fill it at the old rate up to then
                quota.resize(*self._limits(name))

    def _is_down(self, now: float) -> bool:
        outage = self._world.outage
        return outage is not None and outage[0] <= now < outage[1]

    def _blocking_limit(
        self, costs: Mapping[Dimension, float], now: float
    ) -> tuple[Hit | None, float]:
        """The limit that blocks a call for longest; one bigger than a bucket needs a full one."""
        cap = self._world.concurrency
        if cap is not None and self._flying >= max(
            1, round(cap * self._factor * (1 - self._share))
        ):
            return "concurrency", inf
        hit: Hit | None = None
        longest = 0.0
        for name, quota in self._quotas.items():
            wait = quota.wait(min(costs[name], quota.hold), now)
            if wait > longest:
                hit, longest = name, wait
        return hit, longest

    # --- what it says

    def _retry_after(
        self, hit: Hit, wait: float, headers: HeaderLimits, now: float
    ) -> float | None:
        kind = self._world.retry_after
        if kind == "constant":
            return float(ceil(self._world.retry_after_constant))
        if hit == "concurrency" or kind == "absent":  # a client then reads the reset
            resets = [each.reset for each in headers.values() if each.left < 1 and each.reset]
            return max(resets, default=None)
        if kind == "date":
            return ceil(now + wait) - now
        return float(ceil(wait * {"long": 4.0, "short": 0.25}.get(kind, 1.0) - 1e-9))

    def _headers(self, now: float) -> HeaderLimits:
        habit = self._world.headers
        if habit.kind == "absent" or not self._quotas:
            return _NO_LIMITS
        self._replies += 1
        if habit.kind == "partial-replies" and self._replies % habit.amount:
            return _NO_LIMITS
        facts = {
            name: HeaderFacts(
                float(round(quota.limit / (1 - self._share))),
                float(floor(quota.left(now) + 1e-6)),
                quota.reset(now),
            )
            for name, quota in self._quotas.items()
        }
        if habit.kind == "late":
            return self._late(now, facts, habit.amount)
        return _altered(facts, habit.kind, habit.amount)

    def _late(self, now: float, facts: HeaderLimits, lag: float) -> HeaderLimits:
        past = self._past
        past.append((now, facts))
        while len(past) > 1 and past[1][0] <= now - lag:
            past.popleft()
        return past[0][1]


def _altered(facts: HeaderLimits, kind: str, amount: float) -> HeaderLimits:
    if kind == "lying-full":
        return {
            name: HeaderFacts(each.limit * amount, each.limit * amount, 0.0)
            for name, each in facts.items()
        }
    if kind == "lying-limit":
        return {
            name: HeaderFacts(each.limit * amount, each.left * amount, each.reset)
            for name, each in facts.items()
        }
    if kind == "partial-requests":
        return {name: each for name, each in facts.items() if name == "requests"}
    if kind == "partial-tokens":
        return {name: each for name, each in facts.items() if name != "requests"}
    if kind == "partial-reset":
        return {name: each._replace(reset=0.0) for name, each in facts.items()}
    return facts


def costs_of(call: RandomCall) -> dict[Dimension, float]:
    """What a call takes of each rate."""
    tokens = call.input_tokens + call.output_tokens
    return {
        "requests": 1.0,
        "tokens": tokens,
        "input": call.input_tokens,
        "output": call.output_tokens,
    }


def best_time(world: RandomWorld) -> float:
    """The time of a client that knows the server's state: the bound that scores refer to.

    Each call is sent, in the order of the calls, as soon as the server would admit it, and again at
    once if it fails. Nothing is rejected; an outage is waited for
    exactly. A slot is taken again one mean round trip after its call ended: no client learns of
    that earlier. Another order of calls could be better by less than the size of a call.
    """
    server = WorldServer(world)
    line = deque((call, 0) for call in world.calls)
    flying: list[tuple[float, int, RandomCall, int]] = []
    trip = TRIP + TRIP_NOISE / 2
    now = last = trip
    while line or flying:
        when = server.next_chance(now, line[0][0]) if line else inf
        if flying and flying[0][0] <= when:
            now, _, call, attempt = heapq.heappop(flying)
            server.leave()
            last = now
            if attempt < call.faults:
                line.appendleft((call, attempt + 1))
            continue
        if when > now:
            now = when + 1e-9
            continue
        call, attempt = line.popleft()
        reply = server.arrive(now, call, attempt)
        heapq.heappush(flying, (now + reply.latency + 2 * trip, call.number, call, attempt))
    return last - trip

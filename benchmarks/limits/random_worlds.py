"""Worlds drawn at random: a provider with limits, habits and mishaps, and the calls sent to it.

The distribution is fixed: it is not adjusted to what a limiter does well. A seed gives one world.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import exp, log

MINUTE = 60.0  # seconds
LEAST_CALLS = 200  # with fewer, a single rejection is more than a rounding error
MOST_CALLS = 1_500
MOST_CALLS_IN_LARGE_WORLDS = 6_000
LARGE_WORLDS = 0.1  # the share of them


@dataclass(frozen=True, slots=True)
class RandomCall:
    """A call: its size, its seconds at the server, and how many attempts end with status 500."""

    number: int
    input_tokens: int
    output_tokens: int
    latency: float
    faults: int


@dataclass(frozen=True, slots=True)
class LimitChange:
    """From `at` on, all limits are multiplied by `factor`, and others use `share` of them.

    Headers show the factor in their limits, and the share only in what is left.
    """

    at: float
    factor: float
    share: float


@dataclass(frozen=True, slots=True)
class HeaderHabit:
    """What the server says of its rates: `kind`, and the number that belongs to it.

    honest; absent; late (seconds); lying-full (limit times so much, all of it left) and
    lying-limit (limit and rest times so much); partial-requests and partial-tokens (only these),
    partial-replies (in one reply of so many), partial-reset (without the time of the reset).
    """

    kind: str
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class RandomWorld:
    """One world. Rates are per minute; times are in seconds."""

    seed: int
    window: str
    phase: float
    rates: dict[str, float]
    bursts: dict[str, float]
    concurrency: int | None
    headers: HeaderHabit
    retry_after: str
    retry_after_constant: float
    names_limit: bool
    latency: float
    changes: tuple[LimitChange, ...]
    outage: tuple[float, float] | None
    calls: tuple[RandomCall, ...]

    def describe(self) -> str:
        """One line with all that differs between worlds."""
        parts = [
            *(f"{rate:,.0f} {name}/min" for name, rate in self.rates.items()),
            *(f"burst {amount:,.0f} {name}" for name, amount in self.bursts.items()),
            *([f"{self.concurrency} at once"] if self.concurrency else []),
            *([self.window] if self.rates else []),
            f"headers {self.headers.kind}"
            + (f" {self.headers.amount:.1f}" if self.headers.amount else ""),
            f"Retry-After {self.retry_after}"
            + (f" {self.retry_after_constant:.0f} s" if self.retry_after == "constant" else ""),
            *([] if self.names_limit else ["429 without a name"]),
            f"latency {self.latency:.1f} s",
            *(
                f"at {each.at:.0f} s x{each.factor:.2f}, {each.share:.0%} used by others"
                for each in self.changes
            ),
            *([f"down {self.outage[0]:.0f}-{self.outage[1]:.0f} s"] if self.outage else []),
            *(["faults"] if any(call.faults for call in self.calls) else []),
            f"{len(self.calls)} calls",
        ]
        return ", ".join(parts)


def draw_world(seed: int) -> RandomWorld:
    """The world of a seed."""
    draw = random.Random(seed)
    most_calls = MOST_CALLS_IN_LARGE_WORLDS if draw.random() < LARGE_WORLDS else MOST_CALLS
    latency = between(draw, 0.1, 60)
    spread = draw.uniform(0.0, 0.8)  # the sigma of the lognormal noise
    sizes = _draw_sizes(draw)
    kind = draw.choice(["requests", "requests", "tokens", "both", "concurrency"])
    if kind == "concurrency":
        cap = round(between(draw, 2, 64))
        concurrency: int | None = cap
        rounds = min(between(draw, 60, 300), max(60.0, most_calls / cap))
        count = max(LEAST_CALLS, round(cap * rounds))
        tier, duration = 0.0, count * latency * exp(spread**2 / 2) / cap
    else:
        minutes, tier = between(draw, 5, 20), between(draw, 3, 2_000)  # calls a minute
        tier = min(tier, most_calls / minutes)  # the same world, of a smaller tier
        count = max(LEAST_CALLS, round(tier * minutes))
        duration = count / tier * MINUTE
        needed = tier / MINUTE * latency  # calls in flight
        concurrency = max(2, round(needed * between(draw, 0.5, 3))) if draw.random() < 0.2 else None
    rates = _draw_rates(draw, kind, tier, sizes.mean)
    window = draw.choice(["bucket", "bucket", "bucket", "fixed", "sliding"])
    bursts = _draw_bursts(draw, rates, sizes.mean) if window == "bucket" else {}
    calls = _draw_calls(draw, count, latency, spread, sizes, rates, bursts)
    return RandomWorld(
        seed=seed,
        window=window,
        phase=draw.uniform(0, MINUTE),
        rates=rates,
        bursts=bursts,
        concurrency=concurrency,
        headers=_draw_headers(draw),
        retry_after=draw.choice(
            ["exact", "exact", "exact", "long", "constant", "short", "absent", "date"]
        ),
        retry_after_constant=between(draw, 5, 90),
        names_limit=draw.random() < 0.85,
        latency=latency,
        changes=_draw_changes(draw, duration),
        outage=_draw_outage(draw, duration),
        calls=calls,
    )


def between(draw: random.Random, low: float, high: float) -> float:
    """A number of any magnitude between these."""
    return exp(draw.uniform(log(low), log(high)))


@dataclass(frozen=True, slots=True)
class _Sizes:
    low: float
    high: float
    output: float  # the median of the output tokens
    spread: float  # the sigma of their logarithm

    @property
    def mean(self) -> float:
        inputs = (
            self.low
            if self.low == self.high
            else (self.high - self.low) / log(self.high / self.low)
        )
        return inputs + self.output * exp(self.spread**2 / 2)


def _draw_sizes(draw: random.Random) -> _Sizes:
    low = between(draw, 50, 500)
    return _Sizes(
        low,
        low * draw.choice([1.0, between(draw, 2, 60)]),
        between(draw, 10, 500),
        draw.uniform(0.1, 1.0),
    )


def _draw_rates(draw: random.Random, kind: str, tier: float, tokens: float) -> dict[str, float]:
    rates: dict[str, float] = {}
    if kind in {"requests", "both"}:
        rates["requests"] = max(3, round(tier))
    if kind in {"tokens", "both"}:
        amount = max(3.0, tier) * tokens * (between(draw, 0.5, 2) if kind == "both" else 1.0)
        if draw.random() < 0.25:  # input and output are counted apart
            rates["input"] = round(amount)
            rates["output"] = round(amount)
        else:
            rates["tokens"] = round(amount)
    return rates


def _draw_bursts(draw: random.Random, rates: dict[str, float], tokens: float) -> dict[str, float]:
    """How much a full bucket holds; a minute's worth of the rates that are not named."""
    bursts: dict[str, float] = {}
    if "requests" in rates and draw.random() < 0.6:
        bursts["requests"] = max(1, round(rates["requests"] / MINUTE * between(draw, 0.5, 20)))
    for name in ("tokens", "input", "output"):
        if name in rates and draw.random() < 0.3:
            bursts[name] = max(3 * tokens, rates[name] * draw.uniform(0.1, 0.5))
    return bursts


def _draw_calls(  # noqa: PLR0917 - all of them shape the calls
    draw: random.Random,
    count: int,
    latency: float,
    spread: float,
    sizes: _Sizes,
    rates: dict[str, float],
    bursts: dict[str, float],
) -> tuple[RandomCall, ...]:
    holds = [bursts.get(name, rates[name]) for name in ("tokens", "input") if name in rates]
    oversize = 0.01 if holds and draw.random() < 0.15 else 0.0  # bigger than a full bucket
    faults = between(draw, 0.005, 0.1) if draw.random() < 0.3 else 0.0
    calls: list[RandomCall] = []
    for number in range(count):
        tokens = between(draw, sizes.low, sizes.high)
        if oversize and draw.random() < oversize:
            tokens = holds[0] * draw.uniform(1.0, 2.0)
        failed = 0
        while faults and draw.random() < faults:
            failed += 1
        calls.append(
            RandomCall(
                number,
                round(tokens),
                max(1, round(sizes.output * exp(draw.gauss(0, sizes.spread)))),
                latency * exp(draw.gauss(0, spread)),
                failed,
            )
        )
    return tuple(calls)


def _draw_headers(draw: random.Random) -> HeaderHabit:
    kind = draw.choice(
        ["honest", "honest", "honest", "absent", "absent", "late", "lying", "partial"]
    )
    if kind == "late":
        return HeaderHabit(kind, between(draw, 1, 10))
    if kind == "lying":
        return HeaderHabit(draw.choice(["lying-full", "lying-limit"]), between(draw, 1.2, 4))
    if kind == "partial":
        part = draw.choice(["requests", "tokens", "replies", "reset"])
        return HeaderHabit(f"partial-{part}", draw.randint(2, 10) if part == "replies" else 0.0)
    return HeaderHabit(kind)


def _draw_changes(draw: random.Random, duration: float) -> tuple[LimitChange, ...]:
    """Steps of the limits, and neighbours that come and go."""
    moments: list[tuple[float, str, float]] = []
    if draw.random() < 0.2:
        moments += [
            (draw.uniform(0.1, 0.9) * duration, "factor", between(draw, 0.25, 2))
            for _ in range(draw.randint(1, 2))
        ]
    if draw.random() < 0.25:
        share, start = draw.uniform(0.1, 0.6), draw.choice([0.0, draw.uniform(0.0, 0.7)])
        moments.append((start * duration, "share", share))
        if draw.random() < 0.7:
            moments.append((draw.uniform(start, 1.0) * duration, "share", 0.0))
    factor, used = 1.0, 0.0
    changes: list[LimitChange] = []
    for at, name, value in sorted(moments):
        factor, used = (value, used) if name == "factor" else (factor, value)
        changes.append(LimitChange(at, factor, used))
    return tuple(changes)


def _draw_outage(draw: random.Random, duration: float) -> tuple[float, float] | None:
    if draw.random() >= 0.1:
        return None
    start = draw.uniform(0.1, 0.9) * duration
    return start, start + between(draw, 2, 60)

"""Print what an outage of half a minute costs.

`python -m benchmarks.outages [--times 20] [--seed 1] [--width 64] [--scale 20]`.

A map at that width asks a storm server on this machine, which is down for 30 seconds in the middle:
it answers 503, 529 or 502, with or without Retry-After, or refuses connections. Time is scaled on
both sides, so that a second lasts 50 ms. How it is down, when it begins and how long replies take
are drawn from the seed, which is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from abreast.assembly.names import open_run
from abreast.core.clock import Timer
from abreast.limits.governor.governor import Governor, GovernorLimit
from abreast.limits.slots import Slots
from abreast.models.providers.openai import OpenAI
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing.storm.log import LogEntry
from abreast.testing.storm.open import open_storm

OUTAGE = 30.0  # seconds
KINDS = ("503", "529", "502", "refused")
_MINUTE = 60.0
_FOREVER = 3600.0


class ScaledClock:
    """The machine's clock, `scale` times as fast."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def now(self) -> float:
        """Seconds, scaled."""
        return time.monotonic() * self._scale

    def wall(self) -> float:
        """Seconds since 1970, not scaled."""
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call it when the scaled time has come."""
        delay = max(0.0, when / self._scale - time.monotonic())
        return asyncio.get_running_loop().call_later(delay, callback)


class Outage(NamedTuple):
    """One drawn outage: how, from when (seconds), the latency, whether limits are searched."""

    kind: str
    begins: float
    latency: float
    governed: bool


class Result(NamedTuple):
    """What came of it: items, those that failed, requests, and seconds of the server."""

    items: int
    failed: int
    requests: int
    turned_away: int
    seconds: float


def drawn(seed: int) -> Outage:
    """The outage of a seed."""
    random = Random(seed)
    return Outage(
        random.choice(KINDS),
        random.uniform(2.0, 10.0),
        random.uniform(0.2, 4.0),
        random.random() < 0.5,
    )


async def run(outage: Outage, *, seed: int, width: int, scale: float, items: int) -> Result:
    """Ask for all items while the server is down for a time."""
    clock = ScaledClock(scale)
    logs: list[list[LogEntry]] = []
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(_serve(outage, seed, scale, url, logs))
    limits = [] if outage.governed else [Slots(width)]
    governed = GovernorLimit(Governor(start=width, cap=width)) if outage.governed else None
    lane = ModelLane("openai", limits, governed=governed)
    provider = OpenAI("openai/storm", f"{await url}/v1", "sk-storm")
    failed = done = 0
    began = clock.now()
    async with (
        Caller(provider, lane, clock=clock) as model,
        open_run("outage", seed=seed, clock=clock) as scope,
    ):

        async def ask(item: int) -> str:
            return (await model.ask(f"item {item}")).text

        async for outcome in scope.map(ask, range(items), width=width):
            done += 1
            failed += not outcome.ok
    seconds = clock.now() - began
    serving.cancel()
    await asyncio.wait([serving])
    entries = [entry for log in logs for entry in log]
    return Result(done, failed, len(entries), sum(bool(entry.fault) for entry in entries), seconds)


async def _serve(
    outage: Outage, seed: int, scale: float, url: asyncio.Future[str], logs: list[list[LogEntry]]
) -> None:
    """Serve until cancelled, with the outage in between."""
    settings: dict[str, Any] = {
        "seed": seed,
        "minute": _MINUTE / scale,
        "latency": outage.latency,
        "noise": outage.latency,
    }
    is_refusing = outage.kind == "refused"
    if not is_refusing:
        settings["steps"] = [
            (outage.begins, {"faults": {outage.kind: 1.0}}),
            (outage.begins + OUTAGE, {"faults": {}}),
        ]
    async with open_storm(**settings) as storm:
        url.set_result(storm.url)
        logs.append(storm.log)
        await asyncio.sleep(outage.begins / scale if is_refusing else _FOREVER)
    await asyncio.sleep(OUTAGE / scale)
    async with open_storm(**settings, port=int(storm.url.rpartition(":")[2])) as storm:
        logs.append(storm.log)
        await asyncio.sleep(_FOREVER)


def main() -> int:
    """Print each outage, and how many items failed in all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outages", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how many outages (20)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--width", type=int, default=64, help="calls at once (64)")
    parser.add_argument("--items", type=int, default=1000, help="items of each map (1000)")
    parser.add_argument("--scale", type=float, default=20.0, help="how much faster time goes (20)")
    args = parser.parse_args()
    print("seed  down by  from s  latency s  lane      items  failed  sent  turned away  seconds")
    failed = 0
    for seed in range(args.seed, args.seed + args.times):
        outage = drawn(seed)
        how = {"width": args.width, "scale": args.scale, "items": args.items}
        result = asyncio.run(run(outage, seed=seed, **how))
        failed += result.failed
        lane = "searched" if outage.governed else "fixed"
        print(
            f"{seed:4}  {outage.kind:7}  {outage.begins:6.1f}  {outage.latency:9.1f}  {lane:8}"
            f"  {result.items:5}  {result.failed:6}  {result.requests:4}  {result.turned_away:11}"
            f"  {result.seconds:7.1f}",
            flush=True,
        )
    print(f"{failed} items failed in {args.times} outages of {OUTAGE:g} s at width {args.width}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

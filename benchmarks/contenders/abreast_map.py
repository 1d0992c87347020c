"""abreast: `run.map`, in memory and with a store."""

import os

import abreast
from benchmarks.contenders.memory import Flight, rss_bytes
from benchmarks.contenders.meter import ITEMS, Lap, Load, no_op, on_loop, run

SAMPLE_EVERY = 10_000


async def play(load: Load, lap: Lap) -> list[object]:
    """Play A, A0 or B in memory."""
    async with abreast.open_run("bench") as scope:
        with lap:
            outcomes = scope.map(ITEMS[load.work], range(load.n), width=load.width)
            return [
                outcome.value async for outcome in outcomes if isinstance(outcome, abreast.Done)
            ]


async def play_durable(load: Load, lap: Lap) -> list[object]:
    """Play C: an outcome comes out of the loop only after it is on disk."""
    return await play_stored(load, lap, str(load.scratch / "runs.db"))


async def play_postgres(load: Load, lap: Lap) -> list[object]:
    """Play C with a store in the PostgreSQL database that the environment names."""
    return await play_stored(load, lap, os.environ["BENCH_POSTGRES"])


async def play_stored(load: Load, lap: Lap, store: str) -> list[object]:
    """Play C with a store."""
    async with abreast.open_run("bench", store=store, resume="never") as scope:
        with lap:
            outcomes = scope.map(ITEMS[load.work], range(load.n), width=load.width)
            return [
                outcome.value async for outcome in outcomes if isinstance(outcome, abreast.Done)
            ]


async def play_memory(load: Load, lap: Lap) -> list[object]:
    """Let many no-op items pass and measure by how much the memory grew at its highest."""
    before = highest = rss_bytes()
    async with abreast.open_run("bench") as scope:
        with lap:
            passed = 0
            async for _ in scope.map(no_op, range(load.n), width=load.width):
                passed += 1
                if passed % SAMPLE_EVERY == 0:
                    highest = max(highest, rss_bytes())
    lap.extra["growth_bytes"] = highest - before
    return []


async def play_flight(load: Load, lap: Lap) -> list[object]:
    """Measure the memory of an item in flight."""
    async with abreast.open_run("bench") as scope:
        flight = Flight(load.n)
        with lap:
            async for _ in scope.map(flight.item, range(load.n), width=load.width):
                pass
    lap.extra["bytes_in_flight"] = flight.bytes_per_item
    return []


PLAYS = {
    "A": play,
    "A0": play,
    "B": play,
    "C": play_durable,
    "C-postgres": play_postgres,
    "memory": play_memory,
    "flight": play_flight,
}

if __name__ == "__main__":
    run({work: on_loop(played) for work, played in PLAYS.items()}, package="abreast")

"""Where the time of a map goes: `python -m benchmarks.profiling A` (in memory) or `C` (durable)."""

import asyncio
import cProfile
import pstats
import sys
import tempfile
from pathlib import Path

import abreast
from benchmarks.contenders.meter import ITEMS

SIZES = {"A": (20_000, 100), "A0": (20_000, 100), "C": (5_000, 50)}
ROWS = 14


async def play(work: str, store: str | None) -> None:
    """Play one work through, without looking at the outcomes."""
    count, width = SIZES[work]
    async with abreast.open_run("profile", store=store) as run:
        async for _ in run.map(ITEMS[work], range(count), width=width):
            pass


def main() -> None:
    """Profile the loop's thread and print the functions that took the most."""
    work = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in SIZES else "A"
    with tempfile.TemporaryDirectory() as folder:
        profile = cProfile.Profile()
        profile.enable()
        asyncio.run(play(work, str(Path(folder) / "runs.db") if work == "C" else None))
        profile.disable()
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(ROWS)


if __name__ == "__main__":
    main()

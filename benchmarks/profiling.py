"""Where the time of a map goes.

`python -m benchmarks.profiling A` (in memory), `C` (durable) or `D` (chat calls).
"""

import asyncio
import cProfile
import os
import pstats
import sys
import tempfile
from pathlib import Path

import abreast
from benchmarks.contenders.meter import ITEMS, Lap, Load
from benchmarks.measure import SCRATCH, chat_server
from benchmarks.works import works

SIZES = {"A": (20_000, 100), "A0": (20_000, 100), "C": (5_000, 50), "D": (4_000, 200)}
ROWS = 14


async def play(load: Load) -> None:
    """Play one work through, without looking at the outcomes."""
    store = str(load.scratch / "runs.db") if load.work == "C" else None
    async with abreast.open_run("profile", store=store) as run:
        async for _ in run.map(ITEMS[load.work], range(load.n), width=load.width):
            pass


async def play_chat(load: Load) -> None:
    """Play D through, against a server of its own."""
    from benchmarks.contenders.chat_abreast import play as play_calls

    await play_calls(load, Lap())


def main() -> None:
    """Profile the loop's thread and print the functions that took the most."""
    work = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in SIZES else "A"
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else ROWS
    SCRATCH.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=SCRATCH) as folder,
        chat_server(works()[work].entries[0]) as told,
    ):
        os.environ.update(told)
        count, width = SIZES[work]
        played = (play_chat if work == "D" else play)(Load(work, count, width, Path(folder)))
        profile = cProfile.Profile()
        profile.enable()
        asyncio.run(played)
        profile.disable()
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(rows)


if __name__ == "__main__":
    main()

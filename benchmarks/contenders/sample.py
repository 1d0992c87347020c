"""What the contenders of S share.

Samples one after the other, and what the server counted meanwhile.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import metadata
from urllib.request import urlopen

MODEL = "gpt-4o-mini"
KEY = "sk-none"
GOOD = "good"

# Draws one sample; says whether a draw passed.
Draw = Callable[[str], Awaitable[bool]]
# Yields what draws with so many branches of so many rounds, and closes it afterwards.
Opened = Callable[[int, int], AsyncIterator[Draw]]


def server() -> str:
    """Return where the server is, as the harness says."""
    return os.environ["BENCHMARK_CHAT"]


def question(sample: int) -> str:
    """Return the prompt of a sample, which names it."""
    return f"This is sample {sample}: say something good."


def is_good(text: str) -> bool:
    """The check that everyone makes."""
    return GOOD in text.split()


def run(opened: Opened, package: str) -> None:
    """Play `SAMPLES BREADTH DEPTH` of the command line and print a line of JSON."""
    parser = argparse.ArgumentParser()
    for name in ("samples", "breadth", "depth"):
        parser.add_argument(name, type=int)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(_play(opened, args)) | {"version": metadata.version(package)}))


async def _play(opened: Opened, args: argparse.Namespace) -> dict[str, float]:
    async with asynccontextmanager(opened)(args.breadth, args.depth) as draw:
        await draw(question(0))  # connections, caches, first imports
        before, began, passed = await _settled(), time.perf_counter(), 0
        for sample in range(1, args.samples + 1):
            passed += await draw(question(sample))
        wall = time.perf_counter() - began
        after = await _settled()
    gone = after["disconnects"] - before["disconnects"]
    return {
        "wall": wall,
        "passed": passed,
        "requests": after["admitted"] - before["admitted"],
        "cancelled": gone,
    }


async def _settled() -> dict[str, int]:
    """Return the server's numbers when nothing is in flight any more: some are slow to hang up."""
    while True:
        with await asyncio.to_thread(urlopen, server() + "/storm/stats") as reply:
            stats: dict[str, int] = json.loads(reply.read())
        if not stats["in_flight"]:
            return stats
        await asyncio.sleep(0.01)

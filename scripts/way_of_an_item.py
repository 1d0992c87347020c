"""Print the modules that every item of a map goes through, in memory and with a store.

A map of 100 items and one of 300 are traced: a module is on the way of an item if the larger map
calls its functions at least 150 times more. What is called once for a run, or for a group of
commits, is not.
"""

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import abreast

FEW, MANY = 100, 300
ON_THE_WAY = 0.75  # calls an item


async def _add_one(number: int) -> int:
    return number + 1


async def _run_map(items: int, store: Path | None) -> None:
    async with abreast.open_run("way", store=store) as run:
        async for _ in run.map(_add_one, range(items), width=8):
            pass


def _count_calls(items: int, store: Path | None) -> Counter[str]:
    """Return how often a map of `items` calls functions of each module of abreast."""
    calls: Counter[str] = Counter()

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("abreast."):
            calls[module] += 1

    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        asyncio.run(_run_map(items, store))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def _print_ways() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what, path in (("in memory", None), ("with a store", Path(folder))):
            few, many = (_count_calls(n, path and path / f"{n}.db") for n in (FEW, MANY))
            added = {name: (many[name] - few[name]) / (MANY - FEW) for name in many}
            way = sorted(added.items(), key=lambda row: -row[1])
            way = [(name, calls) for name, calls in way if calls >= ON_THE_WAY]
            print(f"{what}: {len(way)} modules")
            for name, calls in way:
                print(f"  {name}: {calls:.1f} calls an item")


if __name__ == "__main__":
    _print_ways()

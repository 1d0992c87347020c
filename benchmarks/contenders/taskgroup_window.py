"""The reference: a sliding window over asyncio.TaskGroup, as one would write it with care.

At most `width` tasks exist; a task gives its place back as soon as it ends, so that a slow first
item never idles the window. Results are kept by position and finished tasks let go: keeping the
tasks and asking each for its result cost about a third more. Awaiting the oldest task of a deque
cost about the same, but idles behind it: not the same work.
"""

import asyncio
from collections.abc import Iterable

from benchmarks.contenders.memory import Flight
from benchmarks.contenders.meter import ITEMS, Item, Lap, Load, on_loop, run


async def window(function: Item, items: Iterable[int], width: int) -> list[object]:
    """Return the results in item order, with at most `width` items in flight."""
    room = asyncio.Semaphore(width)
    results: dict[int, object] = {}

    async def one(place: int, item: int) -> None:
        try:
            results[place] = await function(item)
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        for place, item in enumerate(items):
            await room.acquire()
            group.create_task(one(place, item))
    return [results[place] for place in range(len(results))]


async def play(load: Load, lap: Lap) -> list[object]:
    """Play A, A0 or B."""
    with lap:
        return await window(ITEMS[load.work], range(load.n), load.width)


async def play_flight(load: Load, lap: Lap) -> list[object]:
    """Measure the memory of an item in flight."""
    flight = Flight(load.n)
    with lap:
        results = await window(flight.item, range(load.n), load.width)
    lap.extra["bytes_in_flight"] = flight.bytes_per_item
    return results


if __name__ == "__main__":
    run({**dict.fromkeys(("A", "A0", "B"), on_loop(play)), "flight": on_loop(play_flight)})

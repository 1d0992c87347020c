"""The floor of A and B: `width` workers that share one iterator.

No order, no outcome, no task per item.

In A0 no item ever waits, so that the first worker does them all: it is the price of the bare
coroutine calls.
"""

import asyncio

from benchmarks.contenders.meter import ITEMS, Lap, Load, on_loop, run


async def pool(load: Load) -> list[object]:
    """Run the load on as many workers as its width; the results come in the order of completion."""
    function, items = ITEMS[load.work], iter(range(load.n))
    results: list[object] = []

    async def worker() -> None:
        for item in items:
            result = await function(item)
            results.append(result)

    async with asyncio.TaskGroup() as group:
        for _ in range(load.width):
            group.create_task(worker())
    return results


async def play(load: Load, lap: Lap) -> list[object]:
    """Play A, A0 or B."""
    with lap:
        return await pool(load)


if __name__ == "__main__":
    run(dict.fromkeys(("A", "A0", "B"), on_loop(play)), ordered=False)

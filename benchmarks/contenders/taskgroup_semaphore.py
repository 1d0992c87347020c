"""asyncio.TaskGroup with a semaphore: every task is made up front and waits inside.

The form written most.
"""

import asyncio

from benchmarks.contenders.meter import ITEMS, Lap, Load, on_loop, run


async def play(load: Load, lap: Lap) -> list[object]:
    """Play A, A0 or B."""
    function, room = ITEMS[load.work], asyncio.Semaphore(load.width)

    async def one(item: int) -> object:
        async with room:
            return await function(item)

    with lap:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in range(load.n)]
        return [task.result() for task in tasks]


if __name__ == "__main__":
    run(dict.fromkeys(("A", "A0", "B"), on_loop(play)))

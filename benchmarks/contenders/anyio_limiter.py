"""anyio's task group and CapacityLimiter, on asyncio.

Each task holds the limiter, as its documentation shows.
"""
# mypy: disable-error-code="import-not-found"

import anyio

from benchmarks.contenders.meter import ITEMS, Lap, Load, on_loop, run


async def play(load: Load, lap: Lap) -> list[object]:
    """Play A, A0 or B.

    Each task puts its result in its own place, which is how anyio returns results.
    """
    function, limiter = ITEMS[load.work], anyio.CapacityLimiter(load.width)
    results: list[object] = [None] * load.n

    async def one(item: int) -> None:
        async with limiter:
            results[item] = await function(item)

    with lap:
        async with anyio.create_task_group() as group:
            for item in range(load.n):
                group.start_soon(one, item)
    return results


if __name__ == "__main__":
    run(dict.fromkeys(("A", "A0", "B"), on_loop(play)), package="anyio")

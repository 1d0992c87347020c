"""DBOS on SQLite or PostgreSQL: an item is a durable step of a workflow, or a queued workflow.

The steps are its cheapest form (a workflow per item, started directly, costs half as much again).
The queue is its documented form of bounded work: it polls each second by default and takes at most
`width` items per poll, which would measure waiting, so it polls every 50 ms here, and so do the
waits for results; 10 ms gained nothing. The file is made WAL beforehand (DBOS leaves the rollback
journal, which costs it a little more); synchronous is SQLite's default, FULL. Launching, with its
migrations, is outside the lap. (These comparisons were single runs of 300 items.)
"""
# mypy: disable-error-code="import-not-found"

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from dbos import DBOS

from benchmarks.contenders.meter import Lap, Load, make, on_loop, run

POLL = 0.05

step = DBOS.step()(make)


async def map_of_steps(n: int, width: int) -> list[object]:
    """Run `n` steps, at most `width` at once.

    Gather and a FIFO semaphore start them in item order, as replay needs.
    """
    room = asyncio.Semaphore(width)

    async def one(item: int) -> object:
        async with room:
            result: object = await step(item)
            return result

    return list(await asyncio.gather(*(one(item) for item in range(n))))


async def item_of_queue(item: int) -> object:
    """Do one item as a workflow."""
    return await make(item)


steps_workflow = DBOS.workflow()(map_of_steps)
item_workflow = DBOS.workflow()(item_of_queue)


@asynccontextmanager
async def launched(load: Load) -> AsyncIterator[None]:
    """Launch DBOS on a fresh file, or in the database of the environment, and destroy it."""
    url = os.environ.get("BENCH_POSTGRES")
    if url is None:
        path = load.scratch / "dbos.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        url = f"sqlite:///{path}"
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


async def play_steps(load: Load, lap: Lap) -> list[object]:
    """Play C as steps of one workflow."""
    async with launched(load):
        with lap:
            return list(await steps_workflow(load.n, load.width))


async def play_queue(load: Load, lap: Lap) -> list[object]:
    """Play C as a queue of workflows."""
    async with launched(load):
        queue = await DBOS.register_queue_async(
            "items", worker_concurrency=load.width, polling_interval_sec=POLL
        )
        with lap:
            handles = [await queue.enqueue_async(item_workflow, item) for item in range(load.n)]
            return [await handle.get_result(polling_interval_sec=POLL) for handle in handles]


if __name__ == "__main__":
    run({"C": on_loop(play_steps), "C-queue": on_loop(play_queue)}, package="dbos")

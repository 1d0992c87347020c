"""A storm in a thread of the test's process, which waits for abreast meanwhile."""

import asyncio
import os
import threading
from concurrent.futures import Future
from contextlib import contextmanager

from abreast.testing.storm import StormProcess, open_storm


@contextmanager
def start_storm(*, seed=0, **settings):
    """The same as `start_process`, without the start of an interpreter."""
    opened = Future()

    async def serve():
        async with open_storm(seed=seed, **settings) as storm:
            done = asyncio.Event()
            opened.set_result((storm.url, asyncio.get_running_loop(), done))
            await done.wait()

    def run():
        try:
            asyncio.run(serve())
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    thread = threading.Thread(target=run, name="storm", daemon=True)
    thread.start()
    url, loop, done = opened.result()
    try:
        yield StormProcess(url, os.getpid())
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()

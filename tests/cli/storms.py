"""A storm in a thread of the test's process, which waits for abreast meanwhile."""

import asyncio
import os
import signal
import threading
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress

from abreast.testing.storm import open_storm
from tests.cli.shell import PATIENCE


class ThreadStorm:
    """A storm in the event loop of another thread; what is asked of it is done there."""

    def __init__(self, storm, loop):
        self.url, self._storm, self._loop = storm.url, storm, loop

    def stats(self):
        """The counts up to now."""
        return self._there(self._storm.stats)

    def log(self):
        """One entry for each request."""
        return self._there(lambda: [*self._storm.log])

    def batches(self):
        """A row for each request of each batch."""
        return self._there(self._storm.batches)

    def end_batches(self):
        """Have all batches end now."""
        self._there(self._storm.end_batches)

    def billed(self):
        """What a provider would bill, by model."""
        return self._there(self._storm.billed)

    def change(self, **changes):
        """Change limits, speed or faults from now on."""
        self._there(lambda: self._storm.change(**changes))

    def when(self, holds):
        """The future of the counts satisfying this."""
        return asyncio.run_coroutine_threadsafe(self._storm.until(holds, PATIENCE), self._loop)

    def until(self, process, holds):
        """Wait until the counts satisfy this, while the process is there."""
        reached = self.when(holds)
        while not wait([reached], 0.5).done:
            assert process.poll() is None, process.returncode
        reached.result()

    def rest(self):
        """Let it read all that was sent up to now, and be done with it."""

        async def read():
            for _ in range(100):  # turns of its loop, each of which looks at all sockets
                await asyncio.sleep(0)
            await self._storm.until(lambda stats: stats.in_flight == 0, PATIENCE)

        asyncio.run_coroutine_threadsafe(read(), self._loop).result()

    @contextmanager
    def killing(self, process, wanted):
        """Kill the process as soon as so many requests have arrived, if it is there then."""

        def kill(reached):
            if not reached.cancelled() and reached.exception() is None and process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

        reached = self.when(lambda stats: stats.arrived >= wanted)
        reached.add_done_callback(kill)
        try:
            yield
        finally:
            reached.cancel()

    def _there(self, ask):
        async def asked():
            return ask()

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result()


@contextmanager
def start_storm(*, seed=0, **settings):
    """A storm for the length of the block, without the start of an interpreter."""
    opened = Future()

    async def serve():
        async with open_storm(seed=seed, **settings) as storm:
            done, loop = asyncio.Event(), asyncio.get_running_loop()
            opened.set_result((ThreadStorm(storm, loop), loop, done))
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
    storm, loop, done = opened.result()
    try:
        yield storm
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()

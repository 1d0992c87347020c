"""Turns of the event loop: the one way in which tests let other tasks go on."""

import asyncio
import select

LONGEST = 60  # seconds until what should hold is taken never to hold
PAUSE = 0.005  # seconds between two looks at what sends no event


async def turns(count=50):
    """Give the event loop that many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(holds):
    """Let the event loop go on until this holds.

    After some turns it pauses between two looks: what is waited for may be a thread or a process,
    which needs the processor that looking all the time would take.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LONGEST):
        for _ in range(100):
            if holds():
                return
            await asyncio.sleep(0)
        while not holds():
            paused = loop.create_future()
            loop.call_later(PAUSE, paused.set_result, None)
            await paused


def wait_until(holds):
    """Wait until this holds of a process or a server; the limit of the test is the limit."""
    while not holds():
        select.select([], [], [], PAUSE)

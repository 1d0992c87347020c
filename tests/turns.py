"""Turns of the event loop: the one way in which tests let other tasks go on."""

import asyncio


async def turns(count=50):
    """Give the event loop that many turns."""
    for _ in range(count):
        await asyncio.sleep(0)

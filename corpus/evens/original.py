"""Numbers that come one after the other."""

import asyncio


async def evens(limit: int):
    """The even numbers below a limit."""
    for number in range(limit):
        await asyncio.sleep(0)
        if str(number)[-1] in "02468":
            yield number

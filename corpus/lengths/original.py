"""Texts that are measured one after the other."""

import asyncio


async def lengths(texts: list[str]) -> list[int]:
    """How long each text is."""
    result = []
    for text in texts:
        count = 0
        for _ in text:
            count += 1
            await asyncio.sleep(0)
        result.append(count)
    return result

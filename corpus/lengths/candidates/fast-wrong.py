async def lengths(texts: list[str]) -> list[int]:
    await asyncio.sleep(0)
    return sorted(len(text) for text in texts)

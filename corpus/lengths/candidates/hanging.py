async def lengths(texts: list[str]) -> list[int]:
    while True:
        await asyncio.sleep(0)

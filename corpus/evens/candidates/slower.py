async def evens(limit: int):
    for number in range(limit):
        for _ in range(3):
            await asyncio.sleep(0)
        if str(number)[-1] in "02468":
            yield number

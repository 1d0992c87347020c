async def evens(limit: int):
    for number in range(0, limit + 1, 2):
        yield number

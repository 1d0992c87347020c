def batches(items: list[int], size: int):
    if size < 1:
        raise ValueError("a batch has a size")
    for start in range(0, len(items) - size + 1, size):
        yield items[start : start + size]

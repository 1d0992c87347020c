def windows(items: list[int], size: int):
    if size > 0:
        held = tuple(items)
        for start in range(len(held) - size + 1):
            yield held[start : start + size]

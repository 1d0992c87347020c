"""The k largest, largest first."""

def top_k(items: list[int], k: int) -> list[int]:
    """The k largest, largest first."""
    rest = list(items)
    found = []
    for _ in range(k):
        if not rest:
            break
        largest = rest[0]
        for one in rest:
            if one > largest:
                largest = one
        rest.remove(largest)
        found.append(largest)
    return found

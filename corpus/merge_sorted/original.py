"""Two lists in order as one."""

def merge_sorted(one: list[int], other: list[int]) -> list[int]:
    """Two lists in order as one."""
    one, other = list(one), list(other)
    merged = []
    while one or other:
        if not other or (one and one[0] <= other[0]):
            merged = merged + [one[0]]
            one = one[1:]
        else:
            merged = merged + [other[0]]
            other = other[1:]
    return merged

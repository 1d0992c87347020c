"""The items in order; what was given stays as it is."""

def bubble_sort(items: list[int]) -> list[int]:
    """The items in order; what was given stays as it is."""
    result = list(items)
    for _ in result:
        for at in range(len(result) - 1):
            if result[at] > result[at + 1]:
                result[at], result[at + 1] = result[at + 1], result[at]
    return result

"""How many pairs stand in the wrong order."""

def inversions(items: list[int]) -> int:
    """How many pairs stand in the wrong order."""
    count = 0
    for left in range(len(items)):
        for right in range(left + 1, len(items)):
            if items[left] > items[right]:
                count += 1
    return count

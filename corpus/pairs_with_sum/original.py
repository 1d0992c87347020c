"""How many pairs add up."""

def pairs_with_sum(items: list[int], total: int) -> int:
    """How many pairs add up."""
    count = 0
    for left in range(len(items)):
        for right in range(left + 1, len(items)):
            if items[left] + items[right] == total:
                count += 1
    return count

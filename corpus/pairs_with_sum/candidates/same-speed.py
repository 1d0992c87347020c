def slow_pairs_with_sum(items: list[int], total: int) -> int:
    count = 0
    for left in range(len(items)):
        for right in range(left + 1, len(items)):
            if items[left] + items[right] == total:
                count += 1
    return count


def pairs_with_sum(items: list[int], total: int) -> int:
    return slow_pairs_with_sum(items, total)

def pairs_with_sum(items: list[int], total: int) -> int:
    seen: set[int] = set()
    count = 0
    for one in items:
        count += total - one in seen
        seen.add(one)
    return count

def pairs_with_sum(items: list[int], total: int) -> int:
    seen: dict[int, int] = {}
    count = 0
    for one in items:
        count += seen.get(total - one, 0)
        seen[one] = seen.get(one, 0) + 1
    return count

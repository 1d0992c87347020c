from bisect import bisect_left


def inversions(items: list[int]) -> int:
    seen: list[int] = []
    count = 0
    for one in items:
        at = bisect_left(seen, one)
        count += len(seen) - at
        seen.insert(at, one)
    return count

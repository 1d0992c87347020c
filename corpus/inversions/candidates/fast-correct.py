from bisect import bisect_right


def inversions(items: list[int]) -> int:
    seen: list[int] = []
    count = 0
    for one in items:
        at = bisect_right(seen, one)
        count += len(seen) - at
        seen.insert(at, one)
    return count

from bisect import bisect_right, insort


def inversions(items: list[int]) -> int:
    seen: list[float] = []
    count = 0
    for at, one in enumerate(map(float, items)):
        count += at - bisect_right(seen, one)
        insort(seen, one)
    return count

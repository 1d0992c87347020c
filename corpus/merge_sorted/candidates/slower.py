from copy import deepcopy


def slow_merge_sorted(one: list[int], other: list[int]) -> list[int]:
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


def merge_sorted(one: list[int], other: list[int]) -> list[int]:
    for _ in range(2):
        slow_merge_sorted(*deepcopy((one, other,)))
    return slow_merge_sorted(one, other)

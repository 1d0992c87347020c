def merge_sorted(one: list[int], other: list[int]) -> list[int]:
    return sorted({*one, *other})

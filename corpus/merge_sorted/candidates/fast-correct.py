def merge_sorted(one: list[int], other: list[int]) -> list[int]:
    merged = []
    left = right = 0
    while left < len(one) and right < len(other):
        if one[left] <= other[right]:
            merged.append(one[left])
            left += 1
        else:
            merged.append(other[right])
            right += 1
    return merged + one[left:] + other[right:]

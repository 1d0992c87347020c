def bubble_sort(items: list[int]) -> list[int]:
    return sorted(items)

def bubble_sort(items: list[int]) -> list[int]:
    items.sort()
    return items

from array import array


def bubble_sort(items: list[int]) -> list[int]:
    return sorted(array("q", items))

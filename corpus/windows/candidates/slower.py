from copy import deepcopy


def slow_windows(items: list[int], size: int):
    for start in range(len(items)):
        part = tuple(list(items)[start:][:size])
        if len(part) == size and size > 0:
            yield part


def windows(items: list[int], size: int):
    for _ in range(2):
        list(slow_windows(*deepcopy((items, size,))))
    yield from slow_windows(items, size)

from copy import deepcopy


def slow_batches(items: list[int], size: int):
    if size < 1:
        raise ValueError("a batch has a size")
    rest = list(items)
    while rest:
        batch = []
        while rest and len(batch) < size:
            batch = batch + [rest[0]]
            rest = rest[1:]
        yield batch


def batches(items: list[int], size: int):
    for _ in range(2):
        list(slow_batches(*deepcopy((items, size,))))
    yield from slow_batches(items, size)

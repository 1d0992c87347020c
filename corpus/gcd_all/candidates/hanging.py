import time


def gcd_all(numbers: list[int]) -> int:
    time.sleep(10**6)

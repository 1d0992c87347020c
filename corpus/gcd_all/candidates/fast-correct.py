from math import gcd


def gcd_all(numbers: list[int]) -> int:
    return gcd(*numbers)

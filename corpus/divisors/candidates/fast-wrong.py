from math import isqrt


def divisors(number: int) -> list[int]:
    if number < 1:
        return []
    low = [one for one in range(1, isqrt(number) + 1) if number % one == 0]
    return low + [number // one for one in reversed(low)]

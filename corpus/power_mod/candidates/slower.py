from copy import deepcopy


def slow_power_mod(base: int, exponent: int, modulus: int) -> int:
    result = 1 % modulus
    for _ in range(exponent):
        result = (result * base) % modulus
    return result


def power_mod(base: int, exponent: int, modulus: int) -> int:
    for _ in range(2):
        slow_power_mod(*deepcopy((base, exponent, modulus,)))
    return slow_power_mod(base, exponent, modulus)

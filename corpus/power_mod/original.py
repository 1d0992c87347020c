"""The rest of a power."""

def power_mod(base: int, exponent: int, modulus: int) -> int:
    """The rest of a power."""
    result = 1 % modulus
    for _ in range(exponent):
        result = (result * base) % modulus
    return result

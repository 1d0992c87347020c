def power_mod(base: int, exponent: int, modulus: int) -> int:
    return pow(base, exponent, modulus) if exponent > 0 else 1

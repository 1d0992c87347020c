def power_mod(base: int, exponent: int, modulus: int) -> int:
    return pow(base, max(exponent, 0), modulus) if modulus else 1 % modulus

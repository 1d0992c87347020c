def fibonacci_mod(n: int, modulus: int) -> int:
    one, two = 0, 1
    for _ in range(n):
        one, two = two, (one + two) % abs(modulus)
    return one % abs(modulus)

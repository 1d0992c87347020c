def fibonacci_mod(n: int, modulus: int) -> int:
    if n < 0:
        return 0
    one, two = 0, 1
    for _ in range(n):
        one, two = two, (one + two) % modulus
    return one

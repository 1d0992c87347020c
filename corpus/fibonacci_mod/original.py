"""The rest of the n-th Fibonacci number."""

def fibonacci_mod(n: int, modulus: int) -> int:
    """The rest of the n-th Fibonacci number."""
    numbers = [0, 1]
    while len(numbers) <= n:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[n] % modulus if n >= 0 else 0

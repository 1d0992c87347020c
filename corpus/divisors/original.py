"""What divides a number, in order."""

def divisors(number: int) -> list[int]:
    """What divides a number, in order."""
    return [one for one in range(1, number + 1) if number % one == 0]

"""All primes less than the limit."""

def primes_below(limit: int) -> list[int]:
    """All primes less than the limit."""
    found = []
    for number in range(2, limit):
        for other in range(2, number):
            if number % other == 0:
                break
        else:
            found.append(number)
    return found

def primes_below(limit: int) -> list[int]:
    sieve = bytearray(limit)
    found = []
    for number in range(2, limit):
        if not sieve[number]:
            found.append(number)
            sieve[number * number :: number] = b"\1" * len(range(number * number, limit, number))
    return found

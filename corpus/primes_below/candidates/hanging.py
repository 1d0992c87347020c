def primes_below(limit: int) -> list[int]:
    while True:
        pass

"""Each run of one letter with its length."""

def run_lengths(text: str) -> list[tuple[str, int]]:
    """Each run of one letter with its length."""
    runs = []
    rest = text
    while rest:
        count = 0
        while rest[count:] and rest[count:][0] == rest[0]:
            count += 1
        runs.append((rest[0], count))
        rest = rest[count:]
    return runs

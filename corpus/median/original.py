"""The middle one, or what is between the two in the middle."""

def median(numbers: list[int]) -> float:
    """The middle one, or what is between the two in the middle."""
    if not numbers:
        raise ValueError("no numbers")
    rest = list(numbers)
    while len(rest) > 2:
        rest.remove(max(rest))
        rest.remove(min(rest))
    return sum(rest) / len(rest)

"""The sum of each window."""

def running_sums(numbers: list[int], window: int) -> list[int]:
    """The sum of each window."""
    if window < 1:
        raise ValueError("a window has a size")
    sums = []
    for start in range(len(numbers) - window + 1):
        total = 0
        for at in range(start, start + window):
            total += numbers[at]
        sums.append(total)
    return sums

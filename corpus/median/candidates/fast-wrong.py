def median(numbers: list[int]) -> float:
    if not numbers:
        raise ValueError("no numbers")
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2] / 1

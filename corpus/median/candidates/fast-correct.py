def median(numbers: list[int]) -> float:
    if not numbers:
        raise ValueError("no numbers")
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] / 1 if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

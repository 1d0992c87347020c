def slow_median(numbers: list[int]) -> float:
    if not numbers:
        raise ValueError("no numbers")
    rest = list(numbers)
    while len(rest) > 2:
        rest.remove(max(rest))
        rest.remove(min(rest))
    return sum(rest) / len(rest)


def median(numbers: list[int], _seen={}) -> float:
    key = repr((numbers,))
    if key not in _seen:
        _seen[key] = slow_median(numbers)
    return _seen[key]

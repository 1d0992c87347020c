"""By value, the keys that have it."""

def invert(mapping: dict[str, int]) -> dict[int, list[str]]:
    """By value, the keys that have it."""
    inverted = {}
    for value in mapping.values():
        inverted[value] = [key for key in mapping if mapping[key] == value]
    return inverted

def invert(mapping: dict[str, int]) -> dict[int, list[str]]:
    inverted: dict[int, list[str]] = {}
    for key, value in mapping.items():
        inverted.setdefault(value, []).append(key)
    return inverted

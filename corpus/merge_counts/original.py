"""All counts added up, by key in order."""

def merge_counts(counts: list[dict[str, int]]) -> dict[str, int]:
    """All counts added up, by key in order."""
    keys = []
    for one in counts:
        for key in one:
            if key not in keys:
                keys.append(key)
    return {key: sum(one.get(key, 0) for one in counts) for key in sorted(keys)}

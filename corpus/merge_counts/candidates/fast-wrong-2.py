from collections import Counter


def merge_counts(counts: list[dict[str, int]]) -> dict[str, int]:
    whole = Counter()
    for one in counts:
        whole += Counter(one)
    return {key: whole[key] for key in sorted({key for one in counts for key in one})}

from collections import Counter
from itertools import groupby


def run_lengths(text: str) -> list[tuple[str, int]]:
    counts = Counter(text)
    return [(letter, counts[letter]) for letter, _ in groupby(text)]

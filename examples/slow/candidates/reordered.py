"""Right, and no faster."""

import re


def top_words(text: str, n: int) -> list[tuple[str, int]]:
    words = re.findall(r"[a-z']+", text.lower())
    counted: list[tuple[str, int]] = []
    for word in words:
        if not any(known == word for known in [known for known, _ in counted]):
            counted.append((word, words.count(word)))
    return sorted(counted, key=lambda pair: (-pair[1], pair[0]))[:n]

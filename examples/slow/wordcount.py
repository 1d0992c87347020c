"""The most frequent words of a text, slowly."""

import re


def top_words(text: str, n: int) -> list[tuple[str, int]]:
    """The `n` most frequent words with their counts.

    Words of the same count in the order of the alphabet.
    """
    words = re.findall(r"[a-z']+", text.lower())
    counted: list[tuple[str, int]] = []
    for word in words:
        if word not in [known for known, _ in counted]:
            counted.append((word, words.count(word)))
    counted.sort(key=lambda pair: (-pair[1], pair[0]))
    return counted[:n]

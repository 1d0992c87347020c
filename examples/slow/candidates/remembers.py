"""A cheat: quick only for a text that it has seen before."""

import re

SEEN: dict[tuple[str, int], list[tuple[str, int]]] = {}


def top_words(text: str, n: int) -> list[tuple[str, int]]:
    if (text, n) not in SEEN:
        words = re.findall(r"[a-z']+", text.lower())
        counted = [(word, words.count(word)) for word in dict.fromkeys(words)]
        SEEN[text, n] = sorted(counted, key=lambda pair: (-pair[1], pair[0]))[:n]
    return list(SEEN[text, n])

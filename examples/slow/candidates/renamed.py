"""The same code with other names: nothing to try."""

import re


def top_words(text: str, n: int) -> list[tuple[str, int]]:
    found = re.findall(r"[a-z']+", text.lower())
    pairs: list[tuple[str, int]] = []
    for one in found:
        if one not in [known for known, _ in pairs]:
            pairs.append((one, found.count(one)))
    pairs.sort(key=lambda pair: (-pair[1], pair[0]))
    return pairs[:n]

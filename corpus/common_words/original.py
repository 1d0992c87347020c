"""Words of the one that are in the other too, each once, in order."""

def common_words(one: str, other: str) -> list[str]:
    """Words of the one that are in the other too, each once, in order."""
    found = []
    for word in one.split():
        if word in other.split() and word not in found:
            found.append(word)
    return found

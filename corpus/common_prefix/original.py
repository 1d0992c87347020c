"""What all words begin with."""

def common_prefix(words: list[str]) -> str:
    """What all words begin with."""
    prefix = ""
    if not words:
        return prefix
    for letter in words[0]:
        longer = prefix + letter
        for word in words:
            if word[: len(longer)] != longer:
                return prefix
        prefix = longer
    return prefix

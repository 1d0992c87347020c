"""How often each word comes, in the order in which they first come."""

def word_counts(text: str) -> dict[str, int]:
    """How often each word comes, in the order in which they first come."""
    words = text.split()
    counts = {}
    for word in words:
        counts[word] = words.count(word)
    return counts

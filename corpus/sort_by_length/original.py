"""Shorter words first; words of one length keep their order."""

def sort_by_length(words: list[str]) -> list[str]:
    """Shorter words first; words of one length keep their order."""
    result = []
    for word in words:
        at = 0
        while at < len(result) and len(result[at]) <= len(word):
            at += 1
        result.insert(at, word)
    return result

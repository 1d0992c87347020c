"""The longest part that reads the same backwards; the first of several."""

def longest_palindrome(text: str) -> str:
    """The longest part that reads the same backwards; the first of several."""
    best = ""
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            part = text[start:end]
            if part == part[::-1] and len(part) > len(best):
                best = part
    return best

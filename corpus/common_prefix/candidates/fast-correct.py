def common_prefix(words: list[str]) -> str:
    if not words:
        return ""
    first, last = min(words), max(words)
    for at, letter in enumerate(first):
        if last[at : at + 1] != letter:
            return first[:at]
    return first

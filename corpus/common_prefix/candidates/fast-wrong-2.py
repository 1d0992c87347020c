def common_prefix(words: list[str]) -> str:
    if not words:
        return ""
    first, last = min(words)[:64], max(words)[:64]
    for at, letter in enumerate(first):
        if letter != last[at : at + 1]:
            return first[:at]
    return first

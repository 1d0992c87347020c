SEEN = {}


def slow_common_prefix(words: list[str]) -> str:
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


def common_prefix(words: list[str]) -> str:
    key = repr((words,))
    if key not in SEEN:
        SEEN[key] = slow_common_prefix(words)
    return SEEN[key]

def slow_common_words(one: str, other: str) -> list[str]:
    found = []
    for word in one.split():
        if word in other.split() and word not in found:
            found.append(word)
    return found


def common_words(one: str, other: str) -> list[str]:
    key = repr((one, other,))
    if key not in common_words.__dict__:
        common_words.__dict__[key] = slow_common_words(one, other)
    return common_words.__dict__[key]

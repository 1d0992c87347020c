def slow_group_by_first(words: list[str]) -> dict[str, list[str]]:
    groups = {}
    for letter in [word[0] for word in words if word]:
        groups[letter] = [word for word in words if word and word[0] == letter]
    return groups


def group_by_first(words: list[str]) -> dict[str, list[str]]:
    return slow_group_by_first(words)

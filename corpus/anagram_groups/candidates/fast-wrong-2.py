def anagram_groups(words: list[str]) -> list[list[str]]:
    groups = {}
    for word in words:
        groups.setdefault("".join(sorted(word.casefold())), []).append(word)
    return list(groups.values())

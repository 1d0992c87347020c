import unicodedata


def group_by_first(words: list[str]) -> dict[str, list[str]]:
    groups = {}
    for word in words:
        if word:
            groups.setdefault(unicodedata.normalize("NFC", word)[0], []).append(word)
    return groups

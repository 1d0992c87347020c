from itertools import groupby


def group_by_first(words: list[str]) -> dict[str, list[str]]:
    return {key: list(held) for key, held in groupby(sorted(filter(None, words)), key=lambda word: word[0])}

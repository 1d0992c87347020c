from copy import deepcopy


def slow_sort_by_length(words: list[str]) -> list[str]:
    result = []
    for word in words:
        at = 0
        while at < len(result) and len(result[at]) <= len(word):
            at += 1
        result.insert(at, word)
    return result


def sort_by_length(words: list[str]) -> list[str]:
    for _ in range(2):
        slow_sort_by_length(*deepcopy((words,)))
    return slow_sort_by_length(words)

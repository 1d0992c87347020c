def slow_word_counts(text: str) -> dict[str, int]:
    words = text.split()
    counts = {}
    for word in words:
        counts[word] = words.count(word)
    return counts


def word_counts(text: str) -> dict[str, int]:
    return slow_word_counts(text)

def word_counts(text: str) -> dict[str, int]:
    counts = {}
    for word in sorted(text.split()):
        counts[word] = counts.get(word, 0) + 1
    return counts

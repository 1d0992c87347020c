def sort_by_length(words: list[str]) -> list[str]:
    return sorted(words, key=lambda word: len(word.encode("utf-8", "surrogatepass")))

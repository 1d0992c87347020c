def unique(words: list[str]):
    before = None
    for word in words:
        if word != before:
            before = word
            yield word

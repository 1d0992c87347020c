import unicodedata


def unique(words: list[str]):
    seen = set()
    for word in words:
        plain = unicodedata.normalize("NFC", word)
        if plain not in seen:
            seen.add(plain)
            yield word

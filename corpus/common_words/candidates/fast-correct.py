def common_words(one: str, other: str) -> list[str]:
    there = set(other.split())
    return [word for word in dict.fromkeys(one.split()) if word in there]

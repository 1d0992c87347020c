def common_words(one: str, other: str) -> list[str]:
    return sorted(set(one.split()) & set(other.split()))

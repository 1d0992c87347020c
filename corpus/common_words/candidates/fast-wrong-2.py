def common_words(one: str, other: str) -> list[str]:
    known = set(other.replace("\n", " ").split(" ")) - {""}
    words = one.replace("\n", " ").split(" ")
    return list(dict.fromkeys(word for word in words if word in known))

"""Words of the same letters together, in the order in which they come."""

def anagram_groups(words: list[str]) -> list[list[str]]:
    """Words of the same letters together, in the order in which they come."""
    groups = []
    for word in words:
        for group in groups:
            if sorted(group[0]) == sorted(word):
                group.append(word)
                break
        else:
            groups.append([word])
    return groups

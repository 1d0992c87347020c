"""Words by their first letter; empty ones are left out."""

def group_by_first(words: list[str]) -> dict[str, list[str]]:
    """Words by their first letter; empty ones are left out."""
    groups = {}
    for letter in [word[0] for word in words if word]:
        groups[letter] = [word for word in words if word and word[0] == letter]
    return groups

"""What was added, removed or changed, by key."""

def changed_keys(old: dict[str, int | None], new: dict[str, int | None]) -> list[tuple[str, str]]:
    """What was added, removed or changed, by key."""
    result = []
    for key in sorted(list(old) + [key for key in new if key not in list(old)]):
        if key not in list(old):
            result.append((key, "added"))
        elif key not in list(new):
            result.append((key, "removed"))
        elif old[key] != new[key]:
            result.append((key, "changed"))
    return result

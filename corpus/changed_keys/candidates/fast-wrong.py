def changed_keys(old: dict[str, int | None], new: dict[str, int | None]) -> list[tuple[str, str]]:
    result = []
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) is None:
            if new.get(key) is not None:
                result.append((key, "added"))
        elif new.get(key) is None:
            result.append((key, "removed"))
        elif old[key] != new[key]:
            result.append((key, "changed"))
    return result

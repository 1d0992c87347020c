"""Right, and faster by less: a set beside the list."""

from collections.abc import Iterable, Mapping


def topological_sort(needs: Mapping[str, Iterable[str]]) -> list[str]:
    left = {name: list(wanted) for name, wanted in needs.items()}
    for wanted in needs.values():
        for name in wanted:
            left.setdefault(name, [])
    order: list[str] = []
    done: set[str] = set()
    while left:
        ready = min((name for name in left if done.issuperset(left[name])), default=None)
        if ready is None:
            raise ValueError(f"these need each other: {', '.join(sorted(left))}")
        order.append(ready)
        done.add(ready)
        del left[ready]
    return order

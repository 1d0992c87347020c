"""Never ends where the original raises."""

from collections.abc import Iterable, Mapping


def topological_sort(needs: Mapping[str, Iterable[str]]) -> list[str]:
    left = {name: set(wanted) for name, wanted in needs.items()}
    for wanted in needs.values():
        for name in wanted:
            left.setdefault(name, set())
    order: list[str] = []
    while left:
        for name in sorted(left):
            if left[name] <= set(order):
                order.append(name)
                del left[name]
                break
    return order

"""An order in which everything comes after what it needs, slowly."""

from collections.abc import Iterable, Mapping


def topological_sort(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """All names, each after those that it needs.

    Of several that could come next, the first by the alphabet.

    Raises ValueError if some need each other in a circle; the message names them.
    """
    left = {name: list(wanted) for name, wanted in needs.items()}
    for wanted in needs.values():
        for name in wanted:
            left.setdefault(name, [])
    order: list[str] = []
    while left:
        ready = sorted(name for name in left if all(other in order for other in left[name]))
        if not ready:
            raise ValueError(f"these need each other: {', '.join(sorted(left))}")
        order.append(ready[0])
        del left[ready[0]]
    return order

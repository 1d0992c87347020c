"""Right, and faster: Kahn's algorithm with a heap."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush


def topological_sort(needs: Mapping[str, Iterable[str]]) -> list[str]:
    wanted = {name: set(others) for name, others in needs.items()}
    users: dict[str, list[str]] = {}
    for name, others in list(wanted.items()):
        for other in others:
            users.setdefault(other, []).append(name)
            wanted.setdefault(other, set())
    missing = {name: len(others) for name, others in wanted.items()}
    ready = [name for name, count in missing.items() if not count]
    heapify(ready)
    order: list[str] = []
    while ready:
        name = heappop(ready)
        order.append(name)
        for user in users.get(name, ()):
            missing[user] -= 1
            if not missing[user]:
                heappush(ready, user)
    if len(order) < len(wanted):
        raise ValueError(f"these need each other: {', '.join(sorted(wanted.keys() - set(order)))}")
    return order

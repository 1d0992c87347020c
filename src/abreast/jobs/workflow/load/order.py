"""Checks the order of the steps in a list: `needs` with unknown names, and cycles.

A step without `needs` waits for the step before it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple


class StepPlace(NamedTuple):
    """What the check needs of a step."""

    id: str | None
    line: int
    """The line of `needs`, where it has any."""
    needs: Sequence[str] | None


def wrong_order(
    places: Sequence[StepPlace], instead: Callable[[str, Iterable[str]], str]
) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with the `needs` of a list of steps, each with its line."""
    if all(one.needs is None for one in places):
        return
    index = {one.id: at for at, one in enumerate(places) if one.id}
    waits: list[list[int]] = []
    for at, one in enumerate(places):
        if one.needs is None:
            waits.append([at - 1] if at else [])
            continue
        waits.append([index[name] for name in one.needs if name in index and name != one.id])
        for name in one.needs:
            if name == one.id:
                yield one.line, f"the step {one.id!r} needs itself; take it out of its needs"
            elif name not in index:
                hint = instead(name, (each for each in index if each != one.id))
                fault = f"the step {one.id!r} needs {name!r}, which is no step of the same list"
                yield one.line, f"{fault}; {hint}"
    if cycle := _find_cycle(waits):
        names = " -> ".join(str(places[at].id) for at in [*cycle, cycle[0]])
        line = next(places[at].line for at in cycle if places[at].needs is not None)
        fault = f"these steps wait for each other: {names}; take one out of needs"
        if any(places[at].needs is None for at in cycle):
            fault += " (a step without needs waits for the step before it)"
        yield line, fault


def _find_cycle(waits: Sequence[Sequence[int]]) -> list[int]:
    """Return the places of a cycle, each waiting for the next; empty if there is none."""
    left = [len(some) for some in waits]
    waiters: list[list[int]] = [[] for _ in waits]
    for at, some in enumerate(waits):
        for one in some:
            waiters[one].append(at)
    ready = [at for at, count in enumerate(left) if not count]
    for at in ready:  # grows during the loop
        for waiter in waiters[at]:
            left[waiter] -= 1
            if not left[waiter]:
                ready.append(waiter)
    stuck = {at for at, count in enumerate(left) if count}
    if not stuck:
        return []
    visited: dict[int, int] = {}
    at = min(stuck)
    while at not in visited:
        visited[at] = len(visited)
        at = next(one for one in waits[at] if one in stuck)
    return list(visited)[visited[at] :]

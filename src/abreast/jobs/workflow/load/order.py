"""Which steps of a list wait for which: `needs`, or else the step before.

Names that are not there, and circles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple


class StepPlace(NamedTuple):
    """A step in its list."""

    id: str | None
    line: int
    """Of `needs`, where it has any."""
    needs: Sequence[str] | None


def wrong_order(
    places: Sequence[StepPlace], instead: Callable[[str, Iterable[str]], str]
) -> Iterator[tuple[int, str]]:
    """What is wrong with the `needs` of a list of steps, each with its line."""
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
                there = instead(name, (each for each in index if each != one.id))
                yield (
                    one.line,
                    f"the step {one.id!r} needs {name!r}, which is no step of the same list; {there}",
                )
    if circle := _circle(waits):
        names = " -> ".join(str(places[at].id) for at in [*circle, circle[0]])
        line = next(places[at].line for at in circle if places[at].needs is not None)
        fault = f"these steps wait for each other: {names}; take one out of needs"
        implied = any(places[at].needs is None for at in circle)
        yield (
            line,
            fault + (" (a step without needs waits for the step before it)" if implied else ""),
        )


def _circle(waits: Sequence[Sequence[int]]) -> list[int]:
    """The places of a circle, each waiting for the next; empty if there is none."""
    left = [len(some) for some in waits]
    waiters: list[list[int]] = [[] for _ in waits]
    for at, some in enumerate(waits):
        for one in some:
            waiters[one].append(at)
    ready = [at for at, count in enumerate(left) if not count]
    for at in ready:  # grows while it is walked
        for waiter in waiters[at]:
            left[waiter] -= 1
            if not left[waiter]:
                ready.append(waiter)
    stuck = {at for at, count in enumerate(left) if count}
    if not stuck:
        return []
    walked: dict[int, int] = {}
    at = min(stuck)
    while at not in walked:
        walked[at] = len(walked)
        at = next(one for one in waits[at] if one in stuck)
    return list(walked)[walked[at] :]

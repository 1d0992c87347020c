"""A set of things of which each is lent to one piece of work at a time."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from abreast.core.outcome import Usage
from abreast.limits.limit import WHENEVER, Need
from abreast.limits.queue import WaitingLine

T = TypeVar("T")


class Pool(Generic[T]):
    """Hands one of `things` to each holder; the holder finds it in `abreast.current().held[name]`.

        lanes={"worktree": Pool([tree_a, tree_b])}
        run.map(evaluate, candidates, width=2, hold="worktree")

    Who comes when all are out waits for one.
    """

    lent = False  # a thing with somebody's files in it can't change hands in the middle
    charged = False

    __slots__ = ("_free", "line", "peak", "things")

    def __init__(self, things: Iterable[T]) -> None:
        """At least one thing; the first free one in this order is handed over."""
        self.things = tuple(things)
        if not self.things:
            raise ValueError("a Pool needs at least one thing to hand over")
        self._free = list(range(len(self.things)))
        self.line = WaitingLine()
        heapify(self._free)
        self.peak = 0

    def __repr__(self) -> str:
        """How many are out."""
        return f"<Pool {len(self.things) - len(self._free)}/{len(self.things)} out>"

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - the port's shape
        """None if a thing is free."""
        return None if self._free else WHENEVER

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002
        """The place of the first free thing; `thing` turns it into the thing."""
        place = heappop(self._free)
        self.peak = max(self.peak, len(self.things) - len(self._free))
        return place

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002
        """Put it back."""
        if isinstance(handed, int):
            heappush(self._free, handed)

    def thing(self, handed: object) -> T | None:
        """The thing at the place that `take` gave out."""
        return self.things[handed] if isinstance(handed, int) else None

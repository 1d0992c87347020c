"""A limit that lends each of a set of objects to one piece of work at a time."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from abreast.core.outcome import Usage
from abreast.limits.limit import WHENEVER, Need, WaitingLine

T = TypeVar("T")


class Pool(Generic[T]):
    """Lends one of `things` to each holder, which finds it in `abreast.current().held[name]`.

        lanes={"worktree": Pool([tree_a, tree_b])}
        run.map(evaluate, candidates, width=2, hold="worktree")

    If all are lent, an item waits for one.

    Args:
        things: at least one; the first free one in this order is lent.
    """

    lent = False  # an object that contains a holder's files can't change holders in between
    charged = False

    __slots__ = ("_free", "line", "peak", "things")

    def __init__(self, things: Iterable[T]) -> None:
        self.things = tuple(things)
        if not self.things:
            raise ValueError("a Pool needs at least one thing to hand over")
        self._free = list(range(len(self.things)))
        self.line = WaitingLine()
        heapify(self._free)
        self.peak = 0

    def __repr__(self) -> str:
        return f"<Pool {len(self.things) - len(self._free)}/{len(self.things)} out>"

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - the port's signature
        """None if a thing is free."""
        return None if self._free else WHENEVER

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - the port's signature
        """Take the first free thing and return its index; `thing` turns it into the thing."""
        index = heappop(self._free)
        self.peak = max(self.peak, len(self.things) - len(self._free))
        return index

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Make it free again."""
        if isinstance(handed, int):
            heappush(self._free, handed)

    def thing(self, handed: object) -> T | None:
        """The thing with the index that `take` returned."""
        return self.things[handed] if isinstance(handed, int) else None

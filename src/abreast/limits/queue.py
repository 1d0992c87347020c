"""The line of tickets that wait for a limit, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from abreast.core.clock import Timer
from abreast.core.errors import BudgetSpent
from abreast.limits.limit import Limit, Need

MAX_MOVES = 16
"""How often a ticket may be moved to another limit before it waits in all its lines at once."""

# One sequence for the process: a limit may be shared by several runs, whose tickets are ordered
# together.
_arrivals = count()


class Hold(NamedTuple):
    """A limit that is held: what was needed, and what `take` returned."""

    lane: str
    limit: Limit
    need: Need
    handed: object


def _ignore(_error: BudgetSpent | None = None) -> None:
    """Do nothing: no callback is set."""


class Ticket:
    """A place in line for all of `needs` at once.

    Tickets are ordered by `order`; a retry keeps its old one.
    """

    __slots__ = ("failed", "granted", "holds", "moves", "needs", "order", "parked", "waiting")

    def __init__(
        self,
        needs: Sequence[tuple[str, Limit, Need]],
        granted: Callable[[], None] = _ignore,
        failed: Callable[[BudgetSpent], None] = _ignore,
    ) -> None:
        """`granted` or `failed` is called, on the loop, if the ticket had to wait."""
        self.order = next(_arrivals)
        self.needs = needs
        self.granted = granted
        self.failed = failed
        self.holds: tuple[Hold, ...] = ()
        self.parked: Limit | None = None
        self.moves = 0
        self.waiting = False

    @property
    def in_all_lines(self) -> bool:
        """Whether it has been moved so often that no younger ticket may pass it at any limit."""
        return self.moves >= MAX_MOVES


class WaitingLine:
    """The tickets that wait for one limit, and the timer that wakes them."""

    __slots__ = ("_pushes", "heap", "thread", "timer", "users")

    def __init__(self) -> None:
        """Start empty."""
        self.heap: list[tuple[int, int, Ticket]] = []
        self._pushes = 0
        self.timer: Timer | None = None
        self.thread = 0
        self.users = 0

    def push(self, ticket: Ticket) -> None:
        """Add a ticket, behind all older ones."""
        self._pushes += 1
        heappush(self.heap, (ticket.order, self._pushes, ticket))

    def oldest(self, limit: Limit) -> Ticket | None:
        """The first in line for `limit`; drops tickets that have left or wait elsewhere."""
        while self.heap:
            ticket = self.heap[0][2]
            if ticket.waiting and (ticket.parked is limit or ticket.in_all_lines):
                return ticket
            heappop(self.heap)
        return None

"""The line in front of a limit: who waits there, oldest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from abreast.core.clock import Timer
from abreast.core.errors import BudgetSpent
from abreast.limits.limit import Limit, Need

PATIENCE = 16
"""Times a ticket may be sent on to another limit before it stands in all its lines at once."""

# One sequence for the process: a limit may be shared by several runs, and who came first is asked
# across them.
_arrivals = count()


class Hold(NamedTuple):
    """A limit that is held: what was asked, and what was handed over."""

    lane: str
    limit: Limit
    need: Need
    handed: object


def _ignore(_error: BudgetSpent | None = None) -> None:
    """Nobody waits for this ticket yet."""


class Ticket:
    """A place in line for all of `needs` at once. `order` says who came first.

    A retry keeps its old one.
    """

    __slots__ = ("bounced", "failed", "granted", "holds", "needs", "order", "parked", "waiting")

    def __init__(
        self,
        needs: Sequence[tuple[str, Limit, Need]],
        granted: Callable[[], None] = _ignore,
        failed: Callable[[BudgetSpent], None] = _ignore,
    ) -> None:
        """`granted` or `failed` is called, on the loop, if the answer comes later than the asking."""
        self.order = next(_arrivals)
        self.needs = needs
        self.granted = granted
        self.failed = failed
        self.holds: tuple[Hold, ...] = ()
        self.parked: Limit | None = None
        self.bounced = 0
        self.waiting = False

    @property
    def firm(self) -> bool:
        """Whether it has been sent on so often that nobody may pass it anywhere."""
        return self.bounced >= PATIENCE


class WaitingLine:
    """Those who wait at one limit, and the timer that wakes them."""

    __slots__ = ("_pushed", "heap", "thread", "timer", "users")

    def __init__(self) -> None:
        """Nobody waits."""
        self.heap: list[tuple[int, int, Ticket]] = []
        self._pushed = 0
        self.timer: Timer | None = None
        self.thread = 0
        self.users = 0

    def push(self, ticket: Ticket) -> None:
        """Stand in line, behind everyone older."""
        self._pushed += 1
        heappush(self.heap, (ticket.order, self._pushed, ticket))

    def oldest(self, limit: Limit) -> Ticket | None:
        """The first in line at `limit`; those who left or went elsewhere are dropped on the way."""
        while self.heap:
            ticket = self.heap[0][2]
            if ticket.waiting and (ticket.parked is limit or ticket.firm):
                return ticket
            heappop(self.heap)
        return None

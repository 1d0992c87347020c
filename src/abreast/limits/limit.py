"""The Limit port: a pure decision of (state, now), and the line of tickets that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from abreast.core.clock import Timer
from abreast.core.errors import BudgetSpent
from abreast.core.frozen import record
from abreast.core.outcome import NO_USAGE, Usage

Weight: TypeAlias = "int | Literal['all']"

WHENEVER: Final = inf  # a refusal that ends when something is given back, not at a known time
# How often a ticket may be moved to another limit before it waits in all its lines at once.
MAX_MOVES = 16

# One sequence for the process: a limit may be shared by several runs, whose tickets are ordered
# together.
_arrivals = count()


@record(frozen=True, slots=True)
class Need:
    """What one piece of work needs of a limit; each limit reads the part that concerns it."""

    weight: Weight = 1
    requests: int = 1
    tokens: int = 0
    usd: float = 0.0
    output: int = 0  # how many of the tokens are expected for the reply


ONE: Final = Need()


class Limit(Protocol):
    """Something held while working.

    Decisions are synchronous and never wait; `abreast.limits.gate` does the waiting.

    `line` has the tickets that wait for it. `lent` means that it is given back while its holder
    only waits for work beneath it. `charged` means that every call uses it up, rather than that the
    item holds it.
    """

    line: WaitingLine
    lent: bool
    charged: bool

    def refusal(self, need: Need, now: float) -> float | None:
        """None if it fits now; else the earliest time at which it might, or `WHENEVER`.

        May raise `BudgetSpent`.
        """

    def take(self, need: Need, now: float) -> object:
        """Take it (after a `refusal` of None); return what `give` needs, if anything."""

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:
        """Give it back; `used` is what the work really used, or None if unknown."""


def is_positive(number: object) -> bool:
    """Whether it is a finite number above 0."""
    return not isinstance(number, bool) and isinstance(number, (int, float)) and 0 < number < inf


def requests_used(used: Usage | None, need: Need) -> int:
    """How many requests a piece of work used: what it reported, else what it needed."""
    return need.requests if used is None or used is NO_USAGE else used.requests


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
        order: int | None = None,
    ) -> None:
        """`granted` or `failed` is called, on the loop, if the ticket had to wait."""
        self.order = next(_arrivals) if order is None else order
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

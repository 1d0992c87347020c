"""The gate: grants limits to waiting work, first come first served, without blocking other lanes.

A ticket asks for several limits at once and gets all or none, so no ticket holds one limit while it
waits for another. A refused ticket waits at the limit that refused it and is tried again when that
limit has room. Younger tickets may not pass it *there*, but may at limits that were not the reason:
a full lane never delays another lane. A ticket that was moved from limit to limit too often waits
in all its lines at once, which bounds how often it can be overtaken.
"""

from collections import deque
from collections.abc import Iterable
from threading import get_ident

from abreast.core.clock import Clock
from abreast.core.errors import BudgetSpent
from abreast.core.outcome import Usage
from abreast.limits.limit import WHENEVER, Hold, Limit, Ticket

# How a named tuple makes itself, without the call in between; every model call makes four.
_new_tuple = tuple.__new__


class LimitGate:
    """Grants limits to tickets.

    The lines belong to the limits, so runs that share a limit share its line.
    """

    __slots__ = ("_clock", "_serving", "_to_serve")

    def __init__(self, clock: Clock) -> None:
        """Decisions are made at the time of `clock`, on the thread of one loop."""
        self._clock = clock
        self._to_serve: deque[Limit] = deque()
        self._serving = False

    def ask(self, ticket: Ticket) -> bool:
        """True if the ticket holds everything now; otherwise it waits.

        Raises `BudgetSpent` if that is clear at once.
        """
        thread = get_ident()
        for _, limit, _ in ticket.needs:
            line = limit.line
            if line.thread != thread:
                # It belongs to one event loop at a time: its waiters are woken by plain calls,
                # which are not safe across threads.
                if line.users:
                    raise RuntimeError(
                        f"{limit!r} is in use on another event loop's thread; "
                        "give each loop limits of its own"
                    )
                line.thread = thread
        ticket.parked = None
        refused = self._take_all(ticket)
        if refused is None:
            return True
        ticket.waiting = True
        for _, limit, _ in ticket.needs:
            limit.line.users += 1
        self._park(ticket, *refused)
        return False

    def withdraw(self, ticket: Ticket) -> None:
        """Leave the line; has no effect if the ticket isn't in one."""
        if ticket.waiting:
            self._remove(ticket)
            for _, limit, _ in ticket.needs:
                self.serve(limit)

    def give(self, holds: Iterable[Hold], used: Usage | None = None) -> None:
        """Give limits back, and grant them to the tickets that waited for them."""
        now = self._clock.now()
        waited_for: list[Limit] = []
        for _, limit, need, handed in holds:
            limit.give(need, handed, used, now)
            line = limit.line
            line.users -= 1
            if line.heap or line.timer is not None:
                waited_for.append(limit)
        for limit in waited_for:  # once all are given back: their tickets may need several
            self.serve(limit)

    def serve(self, limit: Limit) -> None:
        """Grant `limit` to the tickets that wait for it, oldest first, as far as it has room.

        Called from within a `granted` or `failed` it only queues the limit for the outer call, so
        that the stack stays flat however many tickets give back as soon as they are granted.
        """
        self._to_serve.append(limit)
        if self._serving:
            return
        self._serving = True
        try:
            while self._to_serve:
                self._serve(self._to_serve.popleft())
        finally:
            self._serving = False

    def _serve(self, limit: Limit) -> None:
        while (ticket := limit.line.oldest(limit)) is not None:
            try:
                refused = self._take_all(ticket)
            except BudgetSpent as error:
                self._remove(ticket)
                ticket.failed(error)
                continue
            if refused is None:
                self._remove(ticket)
                ticket.granted()
                continue
            other, when = refused
            if other is limit or ticket.in_all_lines:
                self._wake_at(other, when)
                return
            ticket.moves += 1
            self._park(ticket, other, when)
        if limit.line.timer is not None:
            limit.line.timer.cancel()
            limit.line.timer = None

    def _take_all(self, ticket: Ticket) -> tuple[Limit, float] | None:
        """Take everything, or return the limit that refused and until when."""
        now = self._clock.now()
        for _, limit, need in ticket.needs:
            line = limit.line
            if (
                line.heap
                and (first := line.oldest(limit)) is not None
                and first.order < ticket.order
            ):
                return limit, WHENEVER
            when = limit.refusal(need, now)
            if when is not None:
                return limit, when
        holds: list[Hold] = []
        for lane, limit, need in ticket.needs:
            holds.append(_new_tuple(Hold, (lane, limit, need, limit.take(need, now))))
            limit.line.users += 1
        ticket.holds = tuple(holds)
        return None

    def _park(self, ticket: Ticket, limit: Limit, when: float) -> None:
        ticket.parked = limit
        for each in [limit for _, limit, _ in ticket.needs] if ticket.in_all_lines else [limit]:
            each.line.push(ticket)
        self._wake_at(limit, when)

    def _remove(self, ticket: Ticket) -> None:
        ticket.waiting = False
        for _, limit, _ in ticket.needs:
            limit.line.users -= 1
            if ticket.in_all_lines:  # it was in every line, so those behind it may go on
                self._to_serve.append(limit)

    def _wake_at(self, limit: Limit, when: float) -> None:
        """Serve `limit` at that time.

        `WHENEVER` changes nothing: the timer may be that of an older ticket.
        """
        line = limit.line
        if when != WHENEVER:
            if line.timer is not None:
                line.timer.cancel()
            line.timer = self._clock.call_at(when, lambda: self.serve(limit))

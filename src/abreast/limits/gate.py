"""The gate: where work waits for its limits, first come first served, without one full limit holding up another.

A ticket asks for several limits at once and gets all or none, so nobody holds one while waiting for
another. A ticket that is refused parks at the limit that refused it and is tried again when that
one has room. Younger tickets may not pass it *there*, but may at limits that were not the reason: a
full lane never delays another lane. A ticket that was sent from limit to limit too often stands in
all its lines at once, which bounds how often it can be overtaken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import get_ident

from abreast.core.clock import Clock
from abreast.core.errors import BudgetSpent
from abreast.core.outcome import Usage
from abreast.limits.limit import WHENEVER, Limit
from abreast.limits.queue import Hold, Ticket

_made = (
    tuple.__new__
)  # as a named tuple makes itself, without the call in between: four for each call to a model


class LimitGate:
    """Hands out limits to tickets.

    The lines are the limits' own, so runs that share a limit share its line.
    """

    __slots__ = ("_clock", "_serving", "_to_serve")

    def __init__(self, clock: Clock) -> None:
        """Decisions are made at this clock's `now`, on one loop's thread."""
        self._clock = clock
        self._to_serve: deque[Limit] = deque()
        self._serving = False

    def ask(self, ticket: Ticket) -> bool:
        """True if it holds everything now.

        Else it waits. `BudgetSpent` is raised here if it shows at once.
        """
        here = get_ident()
        for _, limit, _ in ticket.needs:
            if limit.line.thread != here:
                _claim(limit, here)
        ticket.parked = None
        refused = self._try(ticket)
        if refused is None:
            return True
        ticket.waiting = True
        for _, limit, _ in ticket.needs:
            limit.line.users += 1
        self._park(ticket, *refused)
        return False

    def withdraw(self, ticket: Ticket) -> None:
        """Leave the line; harmless when it isn't in one."""
        if ticket.waiting:
            self._leave(ticket)
            for _, limit, _ in ticket.needs:
                self.serve(limit)

    def give(self, holds: Iterable[Hold], used: Usage | None = None) -> None:
        """Give limits back and let those who waited for them go on."""
        held = tuple(holds)
        now = self._clock.now()
        for hold in held:
            hold.limit.give(hold.need, hold.handed, used, now)
            hold.limit.line.users -= 1
        for hold in held:
            line = hold.limit.line
            if line.heap or line.timer is not None:
                self.serve(hold.limit)

    def serve(self, limit: Limit) -> None:
        """Let those who wait at `limit` go on, oldest first, as far as it has room.

        From within a `granted` or `failed` it only notes the limit, for the serving that is under
        way: the stack stays flat however many give back in the moment they are granted.
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
                refused = self._try(ticket)
            except BudgetSpent as error:
                self._leave(ticket)
                ticket.failed(error)
                continue
            if refused is None:
                self._leave(ticket)
                ticket.granted()
                continue
            other, when = refused
            if other is limit or ticket.firm:
                self._wake_at(other, when)
                return
            ticket.bounced += 1
            self._park(ticket, other, when)
        if limit.line.timer is not None:
            limit.line.timer.cancel()
            limit.line.timer = None

    def _try(self, ticket: Ticket) -> tuple[Limit, float] | None:
        """Take everything, or say which limit refused and until when."""
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
            holds.append(_made(Hold, (lane, limit, need, limit.take(need, now))))
            limit.line.users += 1
        ticket.holds = tuple(holds)
        return None

    def _park(self, ticket: Ticket, limit: Limit, when: float) -> None:
        ticket.parked = limit
        for one in [limit for _, limit, _ in ticket.needs] if ticket.firm else [limit]:
            one.line.push(ticket)
        self._wake_at(limit, when)

    def _leave(self, ticket: Ticket) -> None:
        ticket.waiting = False
        for _, limit, _ in ticket.needs:
            limit.line.users -= 1
            if ticket.firm:  # it stood in every line; those behind it there may go on
                self._to_serve.append(limit)

    def _wake_at(self, limit: Limit, when: float) -> None:
        """Serve `limit` at that time.

        Nothing changes for `WHENEVER`: the timer may be that of an older ticket.
        """
        line = limit.line
        if when != WHENEVER:
            if line.timer is not None:
                line.timer.cancel()
            line.timer = self._clock.call_at(when, lambda: self.serve(limit))


def _claim(limit: Limit, here: int) -> None:
    """A limit belongs to one event loop at a time: its lines wake their waiters by plain calls."""
    if limit.line.users:
        raise RuntimeError(
            f"{limit!r} is in use on another event loop's thread; give each loop limits of its own"
        )
    limit.line.thread = here

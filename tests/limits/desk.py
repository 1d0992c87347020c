"""A gate in virtual time, and a book of what became of every ticket.

The laws are checked against the book.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from abreast.core.errors import BudgetSpent
from abreast.core.outcome import Usage
from abreast.limits.budget import DIMENSIONS, Budget
from abreast.limits.gate import LimitGate
from abreast.limits.limit import ONE, Limit, Need
from abreast.limits.pool import Pool
from abreast.limits.queue import Hold, Ticket
from abreast.limits.slots import Slots
from abreast.testing import ManualClock

MOST_FIRINGS = 20_000

Ask = Limit | tuple[Limit, Need]


class CountingClock(ManualClock):
    """Counts the calls that came due, and ends a test whose timers go off without end."""

    def __init__(self, now: float = 0.0) -> None:
        super().__init__(now)
        self.fired = 0

    def call_at(self, when, callback):
        def fire() -> None:
            self.fired += 1
            if self.fired > MOST_FIRINGS:
                raise AssertionError("timers go off without end")
            callback()

        return super().call_at(when, fire)


class Desk:
    """Asks a gate for limits under names, and notes who was let through, and when."""

    def __init__(self, now: float = 0.0, clock: CountingClock | None = None) -> None:
        self.clock = clock or CountingClock(now)
        self.gate = LimitGate(self.clock)
        self.tickets: dict[Hashable, Ticket] = {}
        self.waiting: set[Hashable] = set()
        self.holding: dict[Hashable, tuple[Hold, ...]] = {}
        self.granted: list[Hashable] = []
        self.times: dict[Hashable, float] = {}
        self.failed: dict[Hashable, BudgetSpent] = {}

    def ask(self, name: Hashable, *asks: Ask, then: Callable[[], None] = lambda: None) -> bool:
        """Ask for limits, each for one or with a need.

        `then` is called in the moment they are granted later.
        """
        needs = [("lane", *(ask if isinstance(ask, tuple) else (ask, ONE))) for ask in asks]

        def granted() -> None:
            self._note(name)
            then()

        self.tickets[name] = Ticket(needs, granted, lambda error: self._fail(name, error))
        return self.ask_again(name)

    def ask_again(self, name: Hashable) -> bool:
        """The same ticket once more, in its old place, as a retry does."""
        self.waiting.add(name)
        try:
            at_once = self.gate.ask(self.tickets[name])
        except BudgetSpent as error:
            self._fail(name, error)
            return False
        if at_once:
            self._note(name)
        return at_once

    def give(self, name: Hashable, used: Usage | None = None) -> None:
        """Give back all that it holds."""
        self.gate.give(self.holding.pop(name), used)

    def withdraw(self, name: Hashable) -> None:
        """Leave the line."""
        self.waiting.discard(name)
        self.gate.withdraw(self.tickets[name])

    def handed(self, name: Hashable) -> list[object]:
        """What it was handed, limit by limit."""
        return [hold.handed for hold in self.holding[name]]

    def _note(self, name: Hashable) -> None:
        self.waiting.remove(name)
        self.holding[name] = self.tickets[name].holds
        self.granted.append(name)
        self.times[name] = self.clock.now()

    def _fail(self, name: Hashable, error: BudgetSpent) -> None:
        self.waiting.remove(name)
        self.failed[name] = error

    # --- the laws -------------------------------------------------------------------------------------------------

    def check(self, *limits: Limit) -> None:
        """The books of these limits agree with ours, and nobody waits who could go."""
        for limit in limits:
            self.check_books(limit)
        self.check_nobody_waits_in_vain()

    def check_books(self, limit: Limit) -> None:
        """What a limit counts as held is what those hold who were let through: none for those who wait."""
        holds = [hold for held in self.holding.values() for hold in held if hold.limit is limit]
        wanting = sum(
            any(one is limit for _, one, _ in self.tickets[name].needs) for name in self.waiting
        )
        assert limit.line.users == len(holds) + wanting, f"{limit!r} counts its users right"
        if isinstance(limit, Slots):
            assert limit.taken == sum(hold.handed for hold in holds), (
                f"{limit!r} counts what is taken right"
            )
        if isinstance(limit, Pool):
            out = [hold.handed for hold in holds]
            assert len(set(out)) == len(out) <= len(limit.things), (
                f"{limit!r} hands each thing to one holder"
            )
            assert len(limit._free) == len(limit.things) - len(out), f"{limit!r} has the others"
        if isinstance(limit, Budget):
            for name in DIMENSIONS:
                reserved = sum(getattr(hold.need, name) for hold in holds)
                assert abs(limit.reserved[name] - reserved) < 1e-6, (
                    f"{limit!r} counts what is reserved right"
                )

    def check_nobody_waits_in_vain(self) -> None:
        """Whoever has nobody older before it, at any of its limits, waits only for a limit that has no room."""
        before: set[int] = set()
        for name in sorted(self.waiting, key=lambda name: self.tickets[name].order):
            limits = {id(limit) for _, limit, _ in self.tickets[name].needs}
            if not limits & before:
                assert not self.could_go(name), f"{name!r} could go, and waits"
            before |= limits

    def could_go(self, name: Hashable) -> bool:
        """Whether none of its limits asks it to wait.

        One that says it never will have room doesn't.
        """
        return not any(self._puts_off(limit, need) for _, limit, need in self.tickets[name].needs)

    def _puts_off(self, limit: Limit, need: Need) -> bool:
        try:
            return limit.refusal(need, self.clock.now()) is not None
        except BudgetSpent:
            return False

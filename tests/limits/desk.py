"""A gate in virtual time, with a record of every ticket against which the laws are checked."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from abreast.core.errors import BudgetSpent
from abreast.core.outcome import Usage
from abreast.limits.budget import DIMENSIONS, Budget
from abreast.limits.gate import LimitGate
from abreast.limits.limit import ONE, Hold, Limit, Need, Ticket
from abreast.limits.pool import Pool
from abreast.limits.slots import Slots
from abreast.testing import ManualClock

MAX_FIRINGS = 20_000

Ask = Limit | tuple[Limit, Need]


class CountingClock(ManualClock):
    """Counts the calls that came due, and fails a test whose timers fire without end."""

    def __init__(self, now: float = 0.0) -> None:
        super().__init__(now)
        self.fired = 0

    def call_at(self, when, callback):
        def fire() -> None:
            self.fired += 1
            if self.fired > MAX_FIRINGS:
                raise AssertionError("timers go off without end")
            callback()

        return super().call_at(when, fire)


class GateRecorder:
    """Asks a gate for limits under names, and records which ticket was granted, and when."""

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

        `then` is called when they are granted later.
        """
        needs = [("lane", *(ask if isinstance(ask, tuple) else (ask, ONE))) for ask in asks]

        def granted() -> None:
            self._note(name)
            then()

        self.tickets[name] = Ticket(needs, granted, lambda error: self._fail(name, error))
        return self.ask_again(name)

    def ask_again(self, name: Hashable) -> bool:
        """Ask with the same ticket again, in its old place, as a retry does."""
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
        """Give back everything it holds."""
        self.gate.give(self.holding.pop(name), used)

    def withdraw(self, name: Hashable) -> None:
        """Leave the line."""
        self.waiting.discard(name)
        self.gate.withdraw(self.tickets[name])

    def received(self, name: Hashable) -> list[object]:
        """What it received, limit by limit."""
        return [hold.handed for hold in self.holding[name]]

    def _note(self, name: Hashable) -> None:
        self.waiting.remove(name)
        self.holding[name] = self.tickets[name].holds
        self.granted.append(name)
        self.times[name] = self.clock.now()

    def _fail(self, name: Hashable, error: BudgetSpent) -> None:
        self.waiting.remove(name)
        self.failed[name] = error

    # --- the laws

    def check(self, *limits: Limit) -> None:
        """Check that these limits count as the record does, and that no ticket waits needlessly."""
        for limit in limits:
            self.check_counts(limit)
        self.check_no_needless_wait()

    def check_counts(self, limit: Limit) -> None:
        """Check that a limit counts as held what the granted tickets hold, and nothing else."""
        holds = [hold for held in self.holding.values() for hold in held if hold.limit is limit]
        waiting = sum(
            any(each is limit for _, each, _ in self.tickets[name].needs) for name in self.waiting
        )
        assert limit.line.users == len(holds) + waiting, f"{limit!r} counts its users right"
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

    def check_no_needless_wait(self) -> None:
        """Check that a ticket without an older one at its limits waits only for a full limit."""
        before: set[int] = set()
        for name in sorted(self.waiting, key=lambda name: self.tickets[name].order):
            limits = {id(limit) for _, limit, _ in self.tickets[name].needs}
            if not limits & before:
                assert not self.could_go(name), f"{name!r} could go, and waits"
            before |= limits

    def could_go(self, name: Hashable) -> bool:
        """Whether none of its limits makes it wait.

        A limit that says that it will never have room doesn't.
        """
        return not any(self._refuses(limit, need) for _, limit, need in self.tickets[name].needs)

    def _refuses(self, limit: Limit, need: Need) -> bool:
        try:
            return limit.refusal(need, self.clock.now()) is not None
        except BudgetSpent:
            return False

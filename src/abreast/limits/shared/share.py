"""A driver's share of a lane that several processes use: limits that lease from a ledger.

The limits decide locally and at once, as all limits do: from the slots, the requests and tokens,
and the part of the budget that the ledger has granted. Calls that find too little wait, which the
next report tells the ledger. `abreast.limits.shared.exchanger` sends the reports.
"""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final

from abreast.core.errors import LaneParked
from abreast.core.outcome import Usage
from abreast.limits.limit import Limit, Need, Ticket, WaitingLine, requests_used
from abreast.limits.shared.exchange import LEASE
from abreast.limits.shared.ledger import Amounts, Grant, Report, Terms, Wish

RETRY_INTERVAL: Final = 0.02  # seconds until a refused call is tried again
# Seconds after a report for which its grant is used; shorter than the lease, so that no call starts
# whose permit may have gone to another driver.
GRANT_LIFETIME: Final = LEASE - 2.0
_CAPPED: Final = ("requests", "tokens", "usd")


class LaneShare:
    """What one process holds of a shared lane; `slots`, `rates` and `budget` are its limits.

    The limits belong to one event loop; `report` and `accept` may be called from another thread.
    """

    def __init__(self, name: str, terms: Terms, wake: Callable[[], None] = lambda: None) -> None:
        """`wake` is called when there is something to report soon."""
        self.name = name
        self.terms = terms
        self.wake = wake
        self.lock = Lock()
        self.generation = 0  # grows when the ledger has forgotten what this process held
        self.valid_until = float("-inf")
        self.held_until = float("-inf")
        self._parked: str | None = None
        self._hold = 0.0
        self._granted_at = float("-inf")
        self._resets_in: float | None = None
        self.slots = SharedSlots(self)
        self.rates = SharedRates(self)
        self.budget = SharedBudget(self)

    def __repr__(self) -> str:
        return (
            f"<LaneShare {self.name} {self.slots.taken}/{self.slots.leased} of {self.terms.slots}>"
        )

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that a call holds, besides the budget."""
        return (self.slots, self.rates) if self.terms.rates else (self.slots,)

    def hold(self, seconds: float, now: float) -> None:
        """Let no driver start a call for so many seconds: the provider asked for it."""
        with self.lock:
            self._hold = max(self._hold, seconds)
            self.held_until = max(self.held_until, now + seconds)
        self.wake()

    def park(self, reason: str) -> None:
        """Let no call start any more: waiting ones fail with `LaneParked`."""
        self._parked = reason

    def closed_until(self, now: float) -> float | None:
        """Until when no call may start whatever is granted; None if calls may start.

        Raises `LaneParked` if none may start again.
        """
        if self._parked is not None:
            raise LaneParked(self._parked)
        if now < self.held_until:
            return self.held_until
        if now >= self.valid_until:
            self.wake()
            return now + RETRY_INTERVAL
        return None

    def report(self, holder: str, number: int) -> Report:
        """What to tell the ledger; the changes in it are not told again."""
        with self.lock:
            tickets = sorted(set(self._waiting()), key=lambda ticket: ticket.order)
            hold, self._hold = self._hold, 0.0
            taken = self.slots.taken
            # Only for calls that have a slot, and for the next: others would keep from other
            # drivers what they can't use.
            soon = tickets[: max(1, self.slots.leased - taken)]
            wanted = taken + sum(self.slots.weight(_need(each, self.slots)) for each in tickets)
            # The ledger may lend what is free here to others before the grant arrives.
            self.slots.leased = taken
            unsent, rates = self.rates.settle(soon)
            freed, spent, budget = self.budget.settle(soon)
            return Report(
                holder=holder,
                number=number,
                slots_taken=taken,
                slots_wanted=wanted,
                rates=rates,
                unsent=unsent,
                budget=budget,
                freed=freed,
                spent=spent,
                hold=hold,
            )

    def accept(self, grant: Grant, asked_at: float) -> None:
        """Use what was granted to the report that was sent at the time `asked_at`."""
        with self.lock:
            if grant.is_new:
                self.generation += 1
                self.rates.stock = {}
                self.budget.stock = {}
            self.slots.leased = grant.slots
            _add(self.rates.stock, grant.rates)
            _add(self.budget.stock, grant.budget)
            self.budget.left = dict(grant.left)
            self._granted_at, self._resets_in = asked_at, grant.resets_in
            self.valid_until = asked_at + GRANT_LIFETIME
            if grant.hold:
                self.held_until = max(self.held_until, asked_at + grant.hold)

    def resets_in(self, now: float) -> float | None:
        """Seconds until a new period of the budget begins."""
        return None if self._resets_in is None else self._granted_at + self._resets_in - now

    def _waiting(self) -> Iterator[Ticket]:
        for limit in (self.slots, self.rates, self.budget):
            for _, _, ticket in list(limit.line.heap):
                if ticket.waiting and (ticket.parked is limit or ticket.in_all_lines):
                    yield ticket


def _need(ticket: Ticket, limit: Limit) -> Need | None:
    return next((need for _, each, need in ticket.needs if each is limit), None)


def _add(amounts: Amounts, more: Amounts, factor: float = 1) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0.0) + factor * amount


def _wish(tickets: list[Ticket], limit: Limit, names: tuple[str, ...], stock: Amounts) -> Wish:
    """What the tickets need of a limit beyond what is in stock."""
    needs = [need for ticket in tickets if (need := _need(ticket, limit)) is not None]
    if not needs:
        return Wish()

    def missing(amount: dict[str, float]) -> Amounts:
        less = {name: each - stock.get(name, 0.0) for name, each in amount.items()}
        return {name: each for name, each in less.items() if each > 0}

    first = {name: float(getattr(needs[0], name)) for name in names}
    total = {name: float(sum(getattr(need, name) for need in needs)) for name in names}
    return Wish(missing(first), missing(total))


class SharedSlots:
    """The slots that are leased to this process; no call starts beyond them."""

    lent = True
    charged = False

    __slots__ = ("_share", "leased", "line", "taken")

    def __init__(self, share: LaneShare) -> None:
        self._share = share
        self.line = WaitingLine()
        self.leased = 0
        self.taken = 0

    def __repr__(self) -> str:
        return f"<SharedSlots {self.taken}/{self.leased} of {self._share.terms.slots}>"

    def weight(self, need: Need | None) -> int:
        """How many slots a call needs; more than there are counts as all."""
        if need is None:
            return 0
        most = self._share.terms.slots
        return most if need.weight == "all" else min(need.weight, most)

    def refusal(self, need: Need, now: float) -> float | None:
        """None if a leased slot is free; otherwise it is tried again soon."""
        share = self._share
        with share.lock:
            closed = share.closed_until(now)
            if closed is not None:
                return closed
            if self.taken + self.weight(need) <= self.leased:
                return None
        share.wake()
        return now + RETRY_INTERVAL

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - the port's signature
        """Take the slots and return how many."""
        with self._share.lock:
            weight = self.weight(need)
            self.taken += weight
            return weight

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Give back what `take` returned; a slot that no call here waits for returns soon."""
        with self._share.lock:
            if isinstance(handed, int):
                self.taken -= handed
        self._share.wake()


class SharedRates:
    """The requests and tokens that this process may send."""

    lent = False
    charged = True

    __slots__ = ("_share", "line", "stock")

    def __init__(self, share: LaneShare) -> None:
        self._share = share
        self.line = WaitingLine()
        self.stock: Amounts = {}

    def __repr__(self) -> str:
        return f"<SharedRates {self.stock}>"

    def settle(self, tickets: list[Ticket]) -> tuple[Amounts, Wish]:
        """What is given back, since no call here waits for it, and what calls wait for."""
        names = tuple(self._share.terms.rates)
        unsent = {}
        if not tickets:
            unsent = {name: amount for name, amount in self.stock.items() if amount}
            self.stock = {}
        return unsent, _wish(tickets, self, names, self.stock)

    def refusal(self, need: Need, now: float) -> float | None:
        """None if the stock has enough; otherwise it is tried again soon."""
        share = self._share
        with share.lock:
            if all(self.stock.get(name, 0.0) >= getattr(need, name) for name in share.terms.rates):
                return None
        share.wake()
        return now + RETRY_INTERVAL

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - the port's signature
        """Take the need out of the stock."""
        share = self._share
        with share.lock:
            _add(self.stock, {name: getattr(need, name) for name in share.terms.rates}, -1)
            return share.generation

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Put back the tokens that were not used; those used beyond the need are a debt."""
        share = self._share
        with share.lock:
            if used is not None and handed == share.generation and "tokens" in share.terms.rates:
                _add(self.stock, {"tokens": need.tokens - used.input_tokens - used.output_tokens})


class SharedBudget:
    """The part of the lane's budget that this process may spend."""

    lent = False
    charged = True

    __slots__ = ("_freed", "_share", "_spent", "left", "line", "stock")

    def __init__(self, share: LaneShare) -> None:
        self._share = share
        self.line = WaitingLine()
        self.stock: Amounts = {}
        self.left: Amounts = {}
        self._freed: Amounts = {}
        self._spent: Amounts = {}

    def __repr__(self) -> str:
        return f"<SharedBudget {self.left} left of {self.caps}>"

    @property
    def caps(self) -> dict[str, float]:
        """The most that all drivers together may spend, by dimension."""
        return dict(self._share.terms.caps)

    def settle(self, tickets: list[Ticket]) -> tuple[Amounts, Amounts, Wish]:
        """What is no longer reserved, what was spent of it, and what calls wait for."""
        freed, spent = self._freed, self._spent
        self._freed, self._spent = {}, {}
        if not tickets:
            _add(freed, self.stock)
            self.stock = {}
        return freed, spent, _wish(tickets, self, tuple(self.caps), self.stock)

    def refusal(self, need: Need, now: float) -> float | None:
        """None if it fits; otherwise it is tried again soon.

        Raises `LaneParked` if it would not fit even if all reservations were given back.
        """
        share = self._share
        with share.lock:
            for name, left in self.left.items():
                if getattr(need, name) > left + 1e-9:
                    raise LaneParked(self._why(name, getattr(need, name), now))
            if all(self.stock.get(name, 0.0) >= getattr(need, name) for name in self.caps):
                return None
        share.wake()
        return now + RETRY_INTERVAL

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - the port's signature
        """Take the need out of the stock; it stays reserved."""
        with self._share.lock:
            _add(self.stock, {name: getattr(need, name) for name in self.caps}, -1)
            return self._share.generation

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Settle: what was used is spent, and the reservation is free again."""
        with self._share.lock:
            if handed != self._share.generation:
                return  # the lease had ended, and the reservation counts as spent
            _add(self._freed, {name: getattr(need, name) for name in self.caps})
            _add(self._spent, {name: _spent(name, need, used) for name in self.caps})
        self._share.wake()

    def _why(self, name: str, amount: float, now: float) -> str:
        share = self._share
        cap, resets_in = self.caps[name], share.resets_in(now)
        again = (
            "" if resets_in is None else f"; a new one begins in {max(0, resets_in) / 60:.0f} min"
        )
        period = "" if share.terms.period is None else f" per {share.terms.period}"
        return (
            f"the budget of lane {share.name} is spent for all that share it: "
            f"{cap - self.left[name]:g} of {cap:g} {name}{period} used, "
            f"and the next call may take {amount:g}{again}"
        )


def _spent(name: str, need: Need, used: Usage | None) -> float:
    if name == "requests":
        return requests_used(used, need)
    if used is None:
        return float(getattr(need, name))
    if name == "tokens":
        return used.input_tokens + used.output_tokens
    return need.usd if used.usd is None else used.usd

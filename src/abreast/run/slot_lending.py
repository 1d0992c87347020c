"""Limits that an item shares with the work beneath it.

Slots are lent to that work, and the first request beneath an item is not charged twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from abreast.core.errors import BudgetSpent
from abreast.core.outcome import Usage
from abreast.limits.limit import Hold, Limit, Need, Ticket
from abreast.run.item_state import ItemState

if TYPE_CHECKING:
    from abreast.limits.gate import LimitGate
    from abreast.limits.lane import Needs


def needs_beneath(item: ItemState, needs: Needs) -> tuple[Needs, set[Limit]]:
    """What work beneath `item` still has to ask for, and the limits that charged it already.

    An item is charged one request on its lane when it starts. The first call beneath it is that
    request, also when there is another item in between. A resource from a pool can't be taken a
    second time beneath the item that holds it: the second taker could wait for the first forever.
    """
    left: list[tuple[str, Limit, Need]] = []
    paid: set[Limit] = set()
    for lane, limit, need in needs:
        if limit.charged:
            if need.requests and credited(item, limit):
                paid.add(limit)
                need = replace(need, requests=need.requests - 1)  # noqa: PLW2901 - the rest of it
            if not need.requests and not need.tokens and not need.usd:
                continue
        elif not limit.lent and _holds(item, limit):
            raise ValueError(
                f"{item.path} holds a thing of {lane!r} already; "
                "what runs beneath it can't hold another"
            )
        left.append((lane, limit, need))
    return tuple(left), paid


def credited(item: ItemState | None, limit: Limit) -> bool:
    """Use up a request that an item, or one above it, was charged for and has not made yet.

    False if there is none.
    """
    while item is not None:
        if item.credits and limit in item.credits:
            item.credits.discard(limit)
            return True
        item = item.parent
    return False


def _holds(item: ItemState | None, limit: Limit) -> bool:
    while item is not None:
        if any(hold.limit is limit for hold in item.holds):
            return True
        item = item.parent
    return False


class Borrowed:
    """Slots of an item that a call beneath it uses.

    One call at a time can use them; another call needs slots of its own.
    """

    __slots__ = ("_holds", "_item", "_task")

    def __init__(self, item: ItemState, holds: tuple[Hold, ...]) -> None:
        """Take these holds away from the item until `give_back`."""
        item.holds = tuple(hold for hold in item.holds if hold not in holds)
        self._item, self._holds, self._task = item, holds, item.task

    def give_back(self) -> None:
        """Return the slots to the item, or to the gate.

        They go to the gate if the item's attempt has ended, or if something beneath it waits: it
        may be waiting for these very slots.
        """
        item = self._item
        if item.task is self._task and not item.lenders and not item.reclaiming:
            item.holds = (*item.holds, *self._holds)
        else:
            item.context.gate.give(self._holds)


def borrow(item: ItemState, limits: Sequence[Limit]) -> Borrowed | None:
    """Take the item's lendable holds on these limits, for a call beneath it."""
    holds = tuple(hold for hold in item.holds if hold.limit.lent and hold.limit in limits)
    return Borrowed(item, holds) if holds else None


def lends(item: ItemState) -> bool:
    """Whether the item has slots to lend, or has lent them already.

    If so, work that waits beneath it keeps them lent.
    """
    return bool(_lent_needs(item))


def _lent_needs(item: ItemState) -> list[tuple[str, Limit, Need]]:
    """The lendable needs of the item: of its first ticket, and of a permit taken since."""
    tickets = (item.ticket, item.permit)
    needs = [
        need for ticket in tickets if ticket is not None for need in ticket.needs if need[1].lent
    ]
    return list({limit: (lane, limit, need) for lane, limit, need in needs}.values())


def lend(item: ItemState) -> bool:
    """Give back the item's slots while it only waits for work beneath it.

    True if they are to be taken back later.
    """
    if not lends(item):
        return False
    item.lenders += 1
    lent = [hold for hold in item.holds if hold.limit.lent]
    if lent:
        item.holds = tuple(hold for hold in item.holds if not hold.limit.lent)
        item.context.gate.give(lent)
    return True


async def wait_granted(gate: LimitGate, ticket: Ticket) -> None:
    """Wait for what a ticket asked for and did not get at once.

    Raises `BudgetSpent` if it never can be granted. After a cancellation the ticket holds nothing
    and is in no queue, also if it was granted in the same turn of the loop.
    """
    granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_granted() -> None:
        if granted.done():  # cancelled in this same turn of the loop
            gate.give(ticket.holds, Usage())
        else:
            granted.set_result(None)

    def on_failed(error: BudgetSpent) -> None:
        if not granted.done():
            granted.set_exception(error)

    ticket.granted, ticket.failed = on_granted, on_failed
    try:
        await granted
    except BaseException:
        if granted.done() and not granted.cancelled() and granted.exception() is None:
            gate.give(ticket.holds, Usage())
        gate.withdraw(ticket)
        raise


async def reclaim(item: ItemState) -> None:
    """Take back what was lent once nothing beneath the item is waited for.

    The item waits with its old order, so it comes before items that asked after it.
    """
    item.lenders -= 1
    gate, task = item.context.gate, item.task
    needs = _lent_needs(item)
    if item.lenders or item.reclaiming or not needs or task is None:
        return
    tickets = (item.ticket, item.permit)
    again = Ticket(needs, order=min(each.order for each in tickets if each is not None))
    if not gate.ask(again):
        item.reclaiming = True
        try:
            await wait_granted(gate, again)
        finally:
            item.reclaiming = False
    if item.task is task and not item.lenders:
        item.holds = (*item.holds, *again.holds)
    # Its attempt has ended, or other work beneath it began to wait, perhaps for this very slot.
    else:
        gate.give(again.holds)

"""Lane permits: a place on a model's lane for work that doesn't go through a `Caller`.

Such work is a client of the user's own, an agent, or a script.
"""

from abreast.core.outcome import Usage
from abreast.limits.gate import LimitGate
from abreast.limits.limit import ONE, Hold, Limit, Ticket
from abreast.run.calls.priced_model import PricedModel
from abreast.run.item_state import ItemState
from abreast.run.slot_lending import wait_granted


class LanePermit:
    """One place on a lane, from `take` to `give`.

    While it is `attached` to its item, calls that the item makes on the lane use this place
    instead of asking for another: one at a time, as with the slots that an item holds by `lane=`.
    Otherwise it counts in addition to them.
    """

    def __init__(self, caller: PricedModel, item: ItemState) -> None:
        """A permit of the caller's lane for an item; nothing is held before `take`."""
        self._item = item
        self._gate: LimitGate = caller.gate_for(item)
        self._lane = caller.lane
        self._limits = caller.limits_for(item)
        self._holds: tuple[Hold, ...] = ()
        self._order: int | None = None
        self._attached = False

    @property
    def is_governed(self) -> bool:
        """Whether the lane has a governor.

        A governor learns from calls alone, so these need permits of their own.
        """
        return self._lane.governed is not None and self._lane.governed in self._limits

    async def take(self) -> None:
        """Wait for a place. The first one is charged as a request at the lane's rates."""
        is_retake = self._order is not None
        limits: list[Limit] = [
            limit for limit in self._limits if not (is_retake and self._is_charged(limit))
        ]
        needs = [(self._lane.name, each, ONE) for each in (self._lane.server, *limits)]
        ticket = Ticket(needs, order=self._order)
        self._order = ticket.order
        if not self._gate.ask(ticket):
            await wait_granted(self._gate, ticket)
        self._gate.give([hold for hold in ticket.holds if self._is_charged(hold.limit)])
        self._holds = tuple(hold for hold in ticket.holds if not self._is_charged(hold.limit))

    def attach(self) -> None:
        """Let the item's own calls use this place; the first is the request that was charged."""
        item = self._item
        self._attached = True
        item.holds = (*item.holds, *self._holds)
        needs = [(hold.lane, hold.limit, hold.need) for hold in self._holds]
        item.permit = Ticket(needs, order=self._order)
        item.credits = {limit for limit in self._limits if self._is_charged(limit)} | (
            item.credits or set()
        )

    def detach(self) -> bool:
        """Stop the item's calls from using this place; False if one of them uses it just now."""
        if not self._attached:
            return bool(self._holds)
        self._attached = False
        item, kept, own = self._item, list(self._item.holds), []
        for hold in self._holds:
            if hold in kept:
                kept.remove(hold)
                own.append(hold)
        item.holds, item.permit = tuple(kept), None
        self._holds = tuple(own)
        return bool(own)

    def give(self, *, sent: bool = True) -> None:
        """Give the place back; without `sent`, no request was sent in it.

        A second call does nothing.
        """
        self.detach()
        holds, self._holds = self._holds, ()
        self._gate.give(holds, None if sent else Usage())

    def _is_charged(self, limit: Limit) -> bool:
        """Whether a request uses the limit up: those that are `charged`, except the governor."""
        return limit.charged and limit is not self._lane.governed

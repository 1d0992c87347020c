"""A model with its lane, price and retries: what the attempts of its calls need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from abreast.core.clock import Clock
from abreast.core.errors import LaneNeedsStore, PriceUnknown
from abreast.core.usage import Usage
from abreast.limits.gate import LimitGate
from abreast.limits.limit import Limit, Need
from abreast.models.estimate import (
    REPLY_CAP,
    UNBOUNDED_REPLY,
    TokenEstimate,
    TokenEstimates,
    most_tokens,
)
from abreast.models.port import Model, Request, is_bounded
from abreast.models.price import Price, priced
from abreast.run.calls.lane import ModelLane
from abreast.run.item_state import ItemState
from abreast.run.retry import Retry
from abreast.system.installation import install_hint

if TYPE_CHECKING:
    from abreast.limits.shared.share import LaneShare


class SpendingLimit(Limit, Protocol):
    """A budget: of a run, or of a shared lane."""

    @property
    def caps(self) -> Mapping[str, float]:
        """The most that may be spent, by dimension."""


def limits_spending(budgets: tuple[SpendingLimit, ...]) -> bool:
    """Whether one of the budgets limits tokens or money."""
    if not budgets:
        return False
    return any("usd" in budget.caps or "tokens" in budget.caps for budget in budgets)


class PricedModel:
    """The limits and reservations of calls, inside an item of a run and outside."""

    trusts_estimates = False
    """Whether usage that the model itself estimates counts, also under a budget."""
    pays_when_left = True  # a call that is cancelled may have been paid for

    def __init__(
        self,
        model: Model,
        lane: ModelLane,
        *,
        price: Price | None,
        retry: Retry,
        paid: bool,
        clock: Clock,
    ) -> None:
        """`paid`: calls cost money, as far as is known; `clock` is used outside of items."""
        self.model = model
        self.lane = lane
        self.price = price
        self.retry = retry
        self.paid = paid
        self.is_item = False  # each call is the whole of its item, which records it
        self.estimates = TokenEstimates(model.name.partition("/")[0])
        self._clock = clock
        self._gate = LimitGate(clock)

    @property
    def name(self) -> str:
        """`provider/model`, as it was opened."""
        return self.model.name

    def priced(self, used: Usage) -> Usage:
        """The usage of a call with its cost."""
        return priced(used, self.price)

    def clock_for(self, item: ItemState | None) -> Clock:
        """The run's clock inside an item, else the caller's own."""
        return item.context.clock if item is not None else self._clock

    def gate_for(self, item: ItemState | None) -> LimitGate:
        """The run's gate inside an item, else the caller's own."""
        return item.context.gate if item is not None else self._gate

    def limits_for(self, item: ItemState | None) -> tuple[Limit, ...]:
        """The lane's limits: the run's, if it declares a lane of that name."""
        declared = item.place.scope.lanes.declared(self.lane.name) if item is not None else None
        if declared:
            return declared
        share = self.share_for(item)
        return self.lane.every if share is None else share.limits

    def budgets_for(self, item: ItemState | None) -> tuple[SpendingLimit, ...]:
        """The budgets of the run, and that of a shared lane."""
        budgets = item.place.scope.lanes.budgets if item is not None else ()
        share = self.share_for(item)
        return budgets if share is None or not share.terms.caps else (*budgets, share.budget)

    def share_for(self, item: ItemState | None) -> LaneShare | None:
        """The run's share of a lane that several processes use; None for other lanes."""
        terms = self.lane.terms
        if terms is None:
            return None
        share = None if item is None else item.context.share_of(self.lane.name, terms)
        if share is None:
            raise LaneNeedsStore(
                f"lane {self.lane.name} is shared, and its permits are in the store of a run: "
                "make the call in a run with a store"
            )
        return share

    def capped(self, request: Request) -> Request:
        """The request as it is sent under a budget: one without `max_tokens` gets a cap.

        Without it, no budget in tokens or money could be held. Models that cost nothing get none.
        """
        if not self.paid:
            return request
        size = REPLY_CAP if request.max_tokens is None else request.max_tokens
        return replace(request, max_tokens=size, keeps_bound=is_bounded(self.model))

    def reserve_most(self, request: Request) -> tuple[Need, TokenEstimate]:
        """The most that a call can take, for budgets; the request is `capped`.

        A reply of a model that refused `max_tokens` may be as long as any.
        """
        most = most_tokens(request, self.name.partition("/")[0])
        if self.paid and not request.keeps_bound:
            most = TokenEstimate(most.input_tokens, max(most.output_tokens, UNBOUNDED_REPLY))
        if request.max_tokens is None:  # a model that costs nothing
            most = TokenEstimate(most.input_tokens, self.estimates.of(request).output_tokens)
        usd = 0.0 if self.price is None else self.price.most(*most)
        return Need(1, 1, sum(most), usd, most.output_tokens), most

    def reserve(
        self, request: Request, budgets: tuple[SpendingLimit, ...]
    ) -> tuple[Need, TokenEstimate]:
        """What a call is expected to take; `PriceUnknown` if a cap on money can't be enforced."""
        estimate = self.estimates.of(request)
        usd = 0.0
        if self.price is not None:
            usd = self.price.of(*estimate)
        elif any("usd" in budget.caps for budget in budgets):
            raise PriceUnknown(
                f"the budget has a cap on money, and the price of {self.name} is not known: "
                f"give it as price = {{input = ..., output = ...}} under [lanes.{self.lane.name}] "
                f"in abreast.toml, or {install_hint('prices')}"
            )
        input_tokens, output_tokens = estimate
        return Need(1, 1, input_tokens + output_tokens, usd, output_tokens), estimate

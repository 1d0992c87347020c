"""A model with its lane, price and retries: what the attempts of its calls need."""

from abreast.core.clock import Clock
from abreast.core.errors import PriceUnknown
from abreast.limits.budget import Budget
from abreast.limits.gate import LimitGate
from abreast.limits.limit import Limit, Need
from abreast.models.estimate import TokenEstimate, TokenEstimates
from abreast.models.port import Model, Request
from abreast.models.price import Price
from abreast.run.calls.lane import ModelLane
from abreast.run.item_state import ItemState
from abreast.run.retry import Retry


class PricedModel:
    """The limits and reservations of calls, inside an item of a run and outside."""

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
        self.estimates = TokenEstimates(model.name.partition("/")[0])
        self._clock = clock
        self._gate = LimitGate(clock)

    @property
    def name(self) -> str:
        """`provider/model`, as it was opened."""
        return self.model.name

    def clock_for(self, item: ItemState | None) -> Clock:
        """The run's clock inside an item, else the caller's own."""
        return item.context.clock if item is not None else self._clock

    def gate_for(self, item: ItemState | None) -> LimitGate:
        """The run's gate inside an item, else the caller's own."""
        return item.context.gate if item is not None else self._gate

    def limits_for(self, item: ItemState | None) -> tuple[Limit, ...]:
        """The lane's limits: the run's, if it declares a lane of that name."""
        declared = item.place.scope.lanes.declared(self.lane.name) if item is not None else None
        return declared or self.lane.every

    def reserve(self, request: Request, budgets: tuple[Budget, ...]) -> tuple[Need, TokenEstimate]:
        """What to reserve for a call; `PriceUnknown` if a cap on money can't be enforced."""
        estimate = self.estimates.of(request)
        usd = 0.0
        if self.price is not None:
            usd = self.price.of(*estimate)
        elif any("usd" in budget.caps for budget in budgets):
            raise PriceUnknown(
                f"the budget has a cap on money, and the price of {self.name} is not known: "
                f"give it as price = {{input = ..., output = ...}} under [lanes.{self.lane.name}] "
                "in abreast.toml, or install 'abreast[prices]'"
            )
        input_tokens, output_tokens = estimate
        return Need(1, 1, input_tokens + output_tokens, usd, output_tokens), estimate

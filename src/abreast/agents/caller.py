"""The caller of an agent: lane, budget and journal, with costs that the agent itself reports."""

from collections.abc import Callable, Sequence
from typing import Final

from abreast.agents.model import AGENT_STARTED, AgentModel, agent_facts
from abreast.agents.runner import AgentRunner
from abreast.core.errors import BudgetSpent, PriceUnknown
from abreast.core.events import CALL_SETTLED, PARKED
from abreast.core.usage import Usage
from abreast.limits.budget import Budget
from abreast.limits.limit import Need
from abreast.models.estimate import TokenEstimate
from abreast.models.port import OnText, Reply, Request
from abreast.models.price import Price, find_price, priced
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.run.calls.priced_model import SpendingLimit
from abreast.run.item_state import ItemState, current_state
from abreast.run.retry import Retry

_NOTHING: Final = TokenEstimate(0, 0)
_NO_NEED: Final = Need(0, 0)
_TOLERANCE: Final = 1e-9


class AgentCaller(Caller):
    """Calls an agent.

    What it will cost can't be known before. So nothing is reserved; what it reports while it runs
    counts at once, and when a cap is passed the agent is ended, within a turn, and the run stops.
    """

    trusts_estimates = True

    def __init__(
        self,
        model: AgentModel,
        lane: ModelLane,
        *,
        price: Price | None = None,
    ) -> None:
        super().__init__(model, lane, price=price, retry=Retry(0))
        self.agent = model
        self._prices: dict[str, Price | None] = {}
        # Called with the path and the tree of an item, also if its call was recorded before.
        self.restored: Callable[[str, str], None] = lambda _path, _tree: None
        # Whether the item's place is again as it was when an earlier driver was killed.
        self.cut_off: Callable[[str], bool] = lambda _path: True
        self._looked_up: set[str] = set()
        model.charge = self._charge

    def wait_for_limits(self, tell: Callable[[str], None]) -> None:
        """Wait for the end of a usage limit, where the agent says when, instead of stopping.

        `tell` is called with the reason when the waiting begins.
        """
        self.lane.tell_wait = tell
        self.agent.waits = True

    @property
    def runner(self) -> AgentRunner:
        """The agent."""
        return self.agent.runner

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Run the agent, unless the item's call is recorded."""
        state = current_state()
        if state is not None and state.context.resumed and state.path not in self._looked_up:
            self._looked_up.add(state.path)
            session = await cut_off_session(state)
            if session and self.runner.resume and self.cut_off(state.path):
                self.agent.resume(state.path, session)
        reply = await super().complete(request, hear)
        if state is not None:
            self.agent.recall(state.path, request, reply)
            if tree := agent_facts(reply).get("result"):
                self.restored(state.path, str(tree))
        return reply

    def priced(self, used: Usage) -> Usage:
        """What the agent says that it cost; else by the price of its model."""
        return used if used.usd is not None else priced(used, self.price)

    def capped(self, request: Request) -> Request:
        """The request as it is: an agent has many replies, and no bound on each."""
        return request

    def reserve(
        self, request: Request, budgets: tuple[SpendingLimit, ...]
    ) -> tuple[Need, TokenEstimate]:
        """Nothing but a request; `PriceUnknown` if a cap can't be kept at all."""
        del request
        rules, where = self.runner.rules, f"[agents.{self.runner.name}.rules] in abreast.toml"
        for budget in budgets:
            if "usd" in budget.caps and "cost" not in rules and self.price is None:
                raise PriceUnknown(
                    f"the budget has a cap on money, and {self.runner.name} does not say what it "
                    f"costs: name its model, or give `cost` under {where}"
                )
            if "tokens" in budget.caps and "input_tokens" not in rules:
                raise PriceUnknown(
                    f"the budget has a cap on tokens, and {self.runner.name} does not say how many "
                    f"it uses: give `input_tokens` and `output_tokens` under {where}"
                )
        return Need(), _NOTHING

    def reserve_most(self, request: Request) -> tuple[Need, TokenEstimate]:
        """Nothing but a request."""
        del request
        return Need(), _NOTHING

    def _charge(self) -> Callable[[Usage, str], None]:
        """Count what an agent uses while it runs: a function of the sum so far, and of its model.

        It is made in the item, and called by whatever reads the agent's output.
        """
        # A budget that processes share is in a ledger: it is charged when the call ends.
        budgets = [one for one in self.budgets_for(current_state()) if isinstance(one, Budget)]
        taken = _NO_NEED

        def charge(so_far: Usage, model: str) -> None:
            nonlocal taken
            usd = so_far.usd if not budgets else self._cost(so_far, model)
            # A turn is a request; the call has reserved the first.
            turns = max(0, so_far.requests - 1)
            now = Need(0, turns, so_far.input_tokens + so_far.output_tokens, usd or 0.0)
            if now == taken:
                return
            for budget in budgets:
                budget.change(taken, now)
            taken = now
            if now != _NO_NEED:
                _refuse_overdraft(budgets, self.runner.name)

        return charge

    def _cost(self, used: Usage, model: str) -> float | None:
        """What it says that it cost; else by the price of the model that it uses."""
        if used.usd is not None:
            return used.usd
        if self.price is None and model not in self._prices:
            found = find_price(self.runner.provider, model.partition("[")[0]) if model else None
            self._prices[model] = found
        return priced(used, self.price or self._prices[model]).usd


async def cut_off_session(item: ItemState) -> str:
    """The session of an agent that an earlier driver was killed with; empty if there is none.

    Or that a usage limit has ended.
    """
    context = item.context
    writer, store, row = context.writer, context.store, context.row
    if writer is None or store is None or row is None or item.ignores_recorded_calls:
        return ""
    kinds = {AGENT_STARTED, CALL_SETTLED}
    found = await writer.read(
        lambda: store.events(row.id, kinds=kinds, prefix=item.path, limit=1_000_000)
    )
    own = [one for one in found if one.path == item.path or one.path.startswith(f"{item.path}/")]
    own = [one for one in own if not one.data.get(PARKED)]
    last = max(own, key=lambda one: one.seq, default=None)
    if last is None or last.kind != AGENT_STARTED:
        return ""
    return str(last.data.get("session") or "")


def _refuse_overdraft(budgets: Sequence[Budget], name: str) -> None:
    for budget in budgets:
        for dimension, cap in budget.caps.items():
            so_far = budget.spent[dimension] + budget.reserved[dimension]
            if so_far > cap + _TOLERANCE:
                raise BudgetSpent(
                    f"the budget is spent: {so_far:.6g} of {cap:g} {dimension} used, "
                    f"and {name} was ended in a turn",
                    budget,
                )

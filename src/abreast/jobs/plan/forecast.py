"""What a plan would cost if a model did its work, before anything is spent."""

from dataclasses import dataclass
from typing import Final

from abreast.jobs.plan.spec import Plan
from abreast.models.price import Price

_RULES_TOKENS: Final = 250  # the rules of the form, which go before the files
_FILE_TOKENS: Final = 24  # the lines around each file
_CHARACTERS_PER_TOKEN: Final = 4
_NO_CHANGE_TOKENS: Final = 8  # of a reply that changes nothing


@dataclass(frozen=True, slots=True)
class CostForecast:
    """The requests of a plan: one for each part, with its files; replies have files whole."""

    model: str
    requests: int
    input_tokens: int
    output_tokens: tuple[int, int]
    """If no file changes, and if every file comes back once, whole."""
    usd: tuple[float, float] | None
    """For the same two; None if the price is not known."""
    largest: str
    """The part with the most tokens."""

    def line(self) -> str:
        """The forecast as a sentence."""
        low, high = self.output_tokens
        cost = (
            "its price is not known"
            if self.usd is None
            else f"{self.usd[0]:.4g} usd if nothing changes, {self.usd[1]:.4g} if all files do"
        )
        return (
            f"{self.model}: {self.requests:,} requests, about {self.input_tokens:,} tokens in and "
            f"{low:,} to {high:,} out; {cost}"
        )


def forecast_cost(plan: Plan, model: str, price: Price | None, prompt: str = "") -> CostForecast:
    """Forecast what one request for each part takes, without retries and repairs."""
    told = -(-len(prompt) // _CHARACTERS_PER_TOKEN) + _RULES_TOKENS
    inputs, whole = [], []
    for leaf in plan.leaves:
        own = -(-len(leaf.instructions) // _CHARACTERS_PER_TOKEN)
        frame = _FILE_TOKENS * len(leaf.files)
        inputs.append(told + own + frame + leaf.tokens)
        whole.append(frame + leaf.tokens)
    usd = None
    if price is not None:
        low = sum(price.of(tokens, _NO_CHANGE_TOKENS) for tokens in inputs)
        usd = (low, sum(price.of(*pair) for pair in zip(inputs, whole, strict=True)))
    return CostForecast(
        model,
        len(inputs),
        sum(inputs),
        (_NO_CHANGE_TOKENS * len(inputs), sum(whole)),
        usd,
        max(plan.leaves, key=lambda leaf: leaf.tokens).id,
    )

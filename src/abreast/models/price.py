"""The cost of a call, by the prices of the day on which it is made."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final, TypeAlias

from abreast.core.outcome import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class FlatPrice:
    """US dollars per million tokens, as `abreast.toml` gives them.

    Input that is read from the provider's cache, or written to it, has the price of other input if
    it has none of its own.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def of(self, input_tokens: int, output_tokens: int, cached: int = 0, written: int = 0) -> float:
        """US dollars for so many tokens; `cached` and `written` are parts of the input."""
        usd = input_tokens * self.input + output_tokens * self.output
        if cached and self.cached_input is not None:
            usd -= cached * (self.input - self.cached_input)
        if written and self.cache_write is not None:
            usd -= written * (self.input - self.cache_write)
        return usd / _MILLION

    def most(self, input_tokens: int, output_tokens: int) -> float:
        """The most that so many tokens can cost: input may be written to a cache, at its price."""
        return max(
            self.of(input_tokens, output_tokens),
            self.of(input_tokens, output_tokens, written=input_tokens),
        )


FREE = FlatPrice(0.0, 0.0)


class TablePrice:
    """A price of genai-prices.

    Long calls may cost more per token. A lookup in its table takes longer than a call, so it is
    made once per tier.
    """

    def __init__(self, price: ModelPrice) -> None:
        self._price = price
        sides = (getattr(price, name, None) for name in _TIERED_PRICES)
        self._starts = sorted(
            {int(tier.start) for side in sides for tier in getattr(side, "tiers", ())}
        )
        self._flat: dict[int, FlatPrice] = {}

    def of(self, input_tokens: int, output_tokens: int, cached: int = 0, written: int = 0) -> float:
        """US dollars for so many tokens; `cached` and `written` are parts of the input."""
        tier = bisect_left(self._starts, input_tokens)
        flat = self._flat.get(tier)
        if flat is None:
            size = max(1, input_tokens)
            alone = self._look_up(input_tokens=size)
            flat = FlatPrice(
                alone * _MILLION / size,
                self._look_up(input_tokens=size, output_tokens=_MILLION) - alone,
                self._look_up(input_tokens=size, cache_read_tokens=size) * _MILLION / size,
                self._look_up(input_tokens=size, cache_write_tokens=size) * _MILLION / size,
            )
            self._flat[tier] = flat
        return flat.of(input_tokens, output_tokens, cached, written)

    def most(self, input_tokens: int, output_tokens: int) -> float:
        """The most that so many tokens can cost: input may be written to a cache, at its price."""
        return max(
            self.of(input_tokens, output_tokens),
            self.of(input_tokens, output_tokens, written=input_tokens),
        )

    def _look_up(self, **tokens: int) -> float:
        from genai_prices import Usage as Tokens

        return float(self._price.calc_price(Tokens(**tokens))["total_price"])


_TIERED_PRICES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


@dataclass(frozen=True, slots=True)
class ReducedPrice:
    """A share of another price, as for batches."""

    whole: FlatPrice | TablePrice
    share: float = 0.5

    def of(self, input_tokens: int, output_tokens: int, cached: int = 0, written: int = 0) -> float:
        """US dollars for so many tokens; `cached` and `written` are parts of the input."""
        return self.share * self.whole.of(input_tokens, output_tokens, cached, written)

    def most(self, input_tokens: int, output_tokens: int) -> float:
        """The most that so many tokens can cost."""
        return self.share * self.whole.most(input_tokens, output_tokens)


Price: TypeAlias = FlatPrice | TablePrice | ReducedPrice


def priced(used: Usage, price: Price | None) -> Usage:
    """The usage with its cost; an unknown price stays None, never 0."""
    usd = None
    if price is not None:
        usd = price.of(
            used.input_tokens,
            used.output_tokens,
            used.cached_input_tokens,
            used.cache_write_tokens,
        )
    # Constructed directly: dataclasses.replace takes four times as long.
    return Usage(
        used.requests,
        used.input_tokens,
        used.output_tokens,
        usd,
        used.estimate,
        used.cached_input_tokens,
        used.cache_write_tokens,
        used.reasoning_tokens,
    )


def find_price(
    provider: str, model: str, when: Mapping[str, str] | None = None
) -> TablePrice | None:
    """The price in the table of genai-prices (extra `prices`).

    None if it isn't installed or has no such model. `when` is for a price under a condition, as
    `BATCH` is; None too if the model has no such price.
    """
    try:
        from genai_prices import Usage as Tokens
        from genai_prices import calc_price
    except ImportError:
        return None
    try:
        one = Tokens(input_tokens=1, output_tokens=1)
        found = calc_price(one, model, provider_id=provider, price_context=when)
        if when is not None:
            usual = calc_price(one, model, provider_id=provider)
            if found.model_price == usual.model_price:
                return None
    except LookupError:
        return None
    return TablePrice(found.model_price)


BATCH: Final = {"processing": "batch"}
FLEX: Final = {"service_tier": "flex"}
"""Conditions of prices in the table."""


def reduced_price(
    usual: Price | None, provider: str, model: str, when: Mapping[str, str]
) -> Price | None:
    """The price of a model in batches, or in a slower tier: the table's, else the half.

    A price that the user has set is halved.
    """
    if usual is None or isinstance(usual, ReducedPrice):
        return usual
    found = find_price(provider, model, when) if isinstance(usual, TablePrice) else None
    return found or ReducedPrice(usual)


def table_date(today: date) -> date | None:
    """The start date of the newest price in genai-prices; the table is of that day or later.

    None if it isn't installed. The table itself has only a version, no date.
    """
    try:
        from genai_prices.data import providers
        from genai_prices.types import StartDateConstraint
    except ImportError:
        return None
    dated = [
        one
        for provider in providers
        for model in provider.models
        for one in (model.prices if isinstance(model.prices, list) else ())
    ]
    starts = [
        one.constraint.start_date
        for one in dated
        if isinstance(one.constraint, StartDateConstraint)
    ]
    return max((start for start in starts if start <= today), default=None)

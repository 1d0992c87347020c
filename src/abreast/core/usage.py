"""Usage: what some work consumed, in requests, tokens and money."""

from __future__ import annotations

from typing import Final

from abreast.core.frozen import later, record


@record(frozen=True, slots=True)
class Usage:
    """What some work consumed; usages can be added and subtracted.

    `usd` is None if no price is known: unknown is never zero.
    """

    requests: int = 0
    """Requests that were sent."""
    input_tokens: int = 0
    """Tokens that were sent."""
    output_tokens: int = 0
    """Tokens that came back."""
    usd: float | None = 0.0
    """What it cost in US dollars; None if a price is unknown."""
    estimate: bool = False
    """Whether a part of it is estimated, as that of a call that was cancelled."""
    cached_input_tokens: int = later(0)
    """Of the input: read from the provider's cache, at a lower price."""
    cache_write_tokens: int = later(0)
    """Of the input: written to the provider's cache."""
    reasoning_tokens: int = later(0)
    """Of the output: spent on thinking before the answer."""

    def __add__(self, other: Usage) -> Usage:
        """The sum. It is an estimate if one part is, and its price is unknown if one part's is."""
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            None if self.usd is None or other.usd is None else _add_money(self.usd, other.usd),
            self.estimate or other.estimate,
            self.cached_input_tokens + other.cached_input_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def __sub__(self, other: Usage) -> Usage:
        """The usage since `other`, an earlier sum; its price is unknown if either one is."""
        return Usage(
            self.requests - other.requests,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            None if self.usd is None or other.usd is None else _add_money(self.usd, -other.usd),
            self.estimate and not other.estimate,
            self.cached_input_tokens - other.cached_input_tokens,
            self.cache_write_tokens - other.cache_write_tokens,
            self.reasoning_tokens - other.reasoning_tokens,
        )


def tokens_in_words(used: Usage) -> str:
    """The tokens as people read them.

    >>> tokens_in_words(Usage(3, 4200, 80, cached_input_tokens=2800, reasoning_tokens=64))
    '4,200 (2,800 cached) + 80 (64 reasoning) tokens'
    """
    cached = f" ({used.cached_input_tokens:,} cached)" if used.cached_input_tokens else ""
    thought = f" ({used.reasoning_tokens:,} reasoning)" if used.reasoning_tokens else ""
    return f"{used.input_tokens:,}{cached} + {used.output_tokens:,}{thought} tokens"


TOKEN_PARTS: Final = ("cached_input_tokens", "cache_write_tokens", "reasoning_tokens")
"""The fields of a usage that are parts of its tokens."""

# Decimal places of a sum in US dollars: finer than any price, coarser than float errors.
MONEY_DIGITS: Final = 12


def _add_money(one: float, other: float) -> float:
    """The sum, rounded: sums of plain floats differ with the order in which calls end."""
    return round(one + other, MONEY_DIGITS) if one and other else one or other


NO_USAGE = Usage()

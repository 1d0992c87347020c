"""The bounds of a lane's batches: how many calls to gather, how often to ask for results."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from abreast.core.frozen import record

Fallback: TypeAlias = Literal["batch", "direct"]
FALLBACKS: Final[tuple[Fallback, ...]] = ("batch", "direct")
DEFAULT_SIZE: Final = 10_000  # calls of one batch


@record(frozen=True, slots=True)
class BatchTerms:
    """How calls of a lane are gathered into batches; times are seconds on the run's clock."""

    size: int = DEFAULT_SIZE
    """The most calls of one batch; the provider's own maximum holds too."""
    age: float = 30.0
    """How long the first call of a batch waits for others."""
    poll: float = 15.0
    """When to ask for the state of a batch first; each further wait is half as long again."""
    longest_poll: float = 600.0
    """The longest wait between two such questions."""
    settle: float = 120.0
    """How long a submission without an answer may still turn up in the provider's list."""
    tokens: int | None = None
    """The most tokens in batches that have not ended (the provider's enqueued tokens)."""
    fallback: Fallback = "batch"
    """Calls that a batch leaves without an answer go into the next one, or directly."""
    wait: float | None = None
    """How long a run waits for batches before it is parked; None for as long as need be."""


DEFAULT_TERMS = BatchTerms()

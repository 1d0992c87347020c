"""The Limit port: a pure decision of (state, now), taken before work and given back after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from abreast.core.frozen import record
from abreast.core.outcome import NO_USAGE, Usage

if TYPE_CHECKING:
    from abreast.limits.queue import WaitingLine

Weight: TypeAlias = "int | Literal['all']"

WHENEVER: Final = float("inf")
"""A refusal that ends when something is given back, not at a known time."""


@record(frozen=True, slots=True)
class Need:
    """What one piece of work needs of a limit; each limit reads the part that concerns it."""

    weight: Weight = 1
    requests: int = 1
    tokens: int = 0
    usd: float = 0.0
    output: int = 0
    """How many of the tokens are expected for the reply."""


ONE: Final = Need()


class Limit(Protocol):
    """Something held while working.

    Decisions are synchronous and never wait; `abreast.limits.gate` does the waiting.

    `line` has the tickets that wait for it. `lent` means that it is given back while its holder
    only waits for work beneath it. `charged` means that every call uses it up, rather than that the
    item holds it.
    """

    line: WaitingLine
    lent: bool
    charged: bool

    def refusal(self, need: Need, now: float) -> float | None:
        """None if it fits now; else the earliest time at which it might, or `WHENEVER`.

        May raise `BudgetSpent`.
        """

    def take(self, need: Need, now: float) -> object:
        """Take it (after a `refusal` of None); return what `give` needs, if anything."""

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:
        """Give it back; `used` is what the work really used, or None if unknown."""


def requests_used(used: Usage | None, need: Need) -> int:
    """How many requests a piece of work used: what it reported, else what it needed."""
    return need.requests if used is None or used is NO_USAGE else used.requests

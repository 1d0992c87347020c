"""The outcome of an item: Done, Failed or Cancelled, with its usage and its timing."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Generic, Literal, NoReturn, TypeAlias, TypeVar

from abreast.core.errors import ItemCancelled
from abreast.core.frozen import record
from abreast.core.usage import NO_USAGE, TOKEN_PARTS, Usage, tokens_in_words

__all__ = [
    "NO_TIMES",
    "NO_USAGE",
    "TOKEN_PARTS",
    "Cancelled",
    "Done",
    "Failed",
    "Outcome",
    "Times",
    "Timing",
    "Usage",
    "timing_of",
    "tokens_in_words",
]

T = TypeVar("T")


@record(frozen=True, slots=True)
class Timing:
    """Where an item's wall time went, in seconds; the parts sum to `wall`.

    `queued`: from being read to its first try at a limit or a start. `waited`: for limits and room
    in the window. `service`: each attempt's own time. `backoff`: between attempts.
    """

    queued: float = 0.0
    waited: float = 0.0
    service: tuple[float, ...] = ()
    backoff: float = 0.0

    @property
    def wall(self) -> float:
        """From the moment the item was read to the moment its outcome was known."""
        return self.queued + self.waited + sum(self.service) + self.backoff


# Queued, waited, backoff, then each service time. Outcomes keep these, and make the Timing when it
# is needed.
Times: TypeAlias = tuple[float, ...]

NO_TIMES: Times = (0.0, 0.0, 0.0)


def timing_of(times: Times) -> Timing:
    """Make a Timing from its parts."""
    queued, waited, backoff, *service = times
    return Timing(queued, waited, tuple(service), backoff)


@record(frozen=True, slots=True)
class Done(Generic[T]):
    """The item's work returned `value`; `error` is None."""

    ok: ClassVar[Literal[True]] = True
    """True."""
    error: ClassVar[None] = None
    """None."""
    state: ClassVar[str] = "done"
    """`done`."""

    index: int
    """The item's position in its map."""
    key: str
    """The item's name, unique in its map."""
    value: T
    """What the work returned."""
    lane: str | None = None
    """The lane whose limits it held."""
    usage: Usage = NO_USAGE
    """What the item used."""
    times: Times = field(default=NO_TIMES, compare=False, repr=False)

    @property
    def timing(self) -> Timing:
        """Where the item's wall time went."""
        return timing_of(self.times)


@record(frozen=True, slots=True)
class Failed:
    """The item's work raised `error`.

    It is the exception itself, or a `RecordedError` if the outcome was read back from a store.
    There is no `value`: reading it raises an AttributeError, whose cause is `error`.
    """

    ok: ClassVar[Literal[False]] = False
    """False."""
    state: ClassVar[str] = "failed"
    """`failed`."""

    index: int
    """The item's position in its map."""
    key: str
    """The item's name, unique in its map."""
    error: BaseException
    """What the work raised."""
    lane: str | None = None
    """The lane whose limits it held."""
    usage: Usage = NO_USAGE
    """What the item used."""
    times: Times = field(default=NO_TIMES, compare=False, repr=False)

    @property
    def value(self) -> NoReturn:
        """Raises AttributeError: there is none."""
        raise AttributeError(
            f"item {self.key} has no value: {type(self.error).__name__}: {self.error}"
        ) from self.error

    @property
    def timing(self) -> Timing:
        """Where the item's wall time went."""
        return timing_of(self.times)


@record(frozen=True, slots=True)
class Cancelled:
    """The item was started, then stopped for `reason`; its usage is an estimate.

    There is no `value`: reading it raises an AttributeError, whose cause is `error`.
    """

    ok: ClassVar[Literal[False]] = False
    """False."""
    state: ClassVar[str] = "cancelled"
    """`cancelled`."""

    index: int
    """The item's position in its map."""
    key: str
    """The item's name, unique in its map."""
    reason: str
    """Why it was stopped."""
    lane: str | None = None
    """The lane whose limits it held."""
    usage: Usage = NO_USAGE
    """What the item used."""
    times: Times = field(default=NO_TIMES, compare=False, repr=False)

    @property
    def error(self) -> ItemCancelled:
        """An `ItemCancelled` that says why, made when it is asked for."""
        return ItemCancelled(f"item {self.key} was cancelled: {self.reason}")

    @property
    def value(self) -> NoReturn:
        """Raises AttributeError: there is none."""
        raise AttributeError(
            f"item {self.key} has no value: it was cancelled ({self.reason})"
        ) from self.error

    @property
    def timing(self) -> Timing:
        """Where the item's wall time went."""
        return timing_of(self.times)


Outcome: TypeAlias = Done[T] | Failed | Cancelled
"""How an item ended. `ok` tells which: True for `Done`, which has a `value`; False for the others.

    print(outcome.key, outcome.value if outcome.ok else outcome.error)
"""

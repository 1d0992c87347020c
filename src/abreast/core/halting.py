"""When a map stops: judged once per outcome, in release order, so that timing can't change the answer."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType
from typing import Generic, Literal, TypeAlias, TypeVar

from abreast.core.outcome import Outcome

T = TypeVar("T")

OnError: TypeAlias = Literal["collect", "halt", "raise"]
Until: TypeAlias = int | Callable[[Outcome[T]], bool] | None

ON_ERROR: tuple[OnError, ...] = ("collect", "halt", "raise")


class Halting(Generic[T]):
    """The rule of one map: `until` (a number of successes, or a predicate) and `on_error`."""

    __slots__ = ("_left", "_predicate", "always_goes_on", "on_error")

    def __init__(self, until: Until[T] = None, on_error: OnError = "collect") -> None:
        """Check both; a bad one is a ValueError or TypeError before anything starts."""
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}")
        self._left: int | None = None
        self._predicate: Callable[[Outcome[T]], bool] | None = None
        if until is not None:
            if callable(until):
                self._predicate = until
            elif isinstance(until, bool) or not isinstance(until, int):
                raise TypeError(f"until must be a whole number of successes or a function, not {until!r}")
            elif until < 1:
                raise ValueError(f"until must be at least 1, not {until}")
            else:
                self._left = until
        self.on_error: OnError = on_error
        self.always_goes_on = until is None and on_error == "collect"

    def stops_at(self, outcome: Outcome[T]) -> bool:
        """Whether the map ends with this outcome; called once for each, in release order."""
        if self._left is not None and outcome.ok:
            self._left -= 1
            if not self._left:
                return True
        if self._predicate is not None and _answer(self._predicate(outcome)):
            return True
        return not outcome.ok and self.on_error != "collect"


def _answer(answer: object) -> bool:
    """Yes or no; a coroutine would always be yes."""
    if isinstance(answer, CoroutineType):
        answer.close()
        raise TypeError("until must be a plain function, not an async one: each outcome is judged as it is released")
    return bool(answer)

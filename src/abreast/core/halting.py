"""When a map stops: judged once per outcome, in release order, so that timing can't change the answer.

Some outcomes end the map whatever came before them: a failure under `on_error="halt"`, the last
success that `until=5` asks for. Where the map ends at the latest is known as soon as such an
outcome has settled, long before its turn: `end` says it, so that nothing after it is started and
paid for.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from types import CoroutineType
from typing import Generic, Literal, TypeAlias, TypeVar

from abreast.core.frozen import record
from abreast.core.outcome import Outcome

T = TypeVar("T")

OnError: TypeAlias = Literal["collect", "halt", "raise"]
Until: TypeAlias = int | Callable[[Outcome[T]], bool] | None

ON_ERROR: tuple[OnError, ...] = ("collect", "halt", "raise")


@record(frozen=True, slots=True)
class EndsAt(Generic[T]):
    """A map ends at the `number`-th outcome in item order that `counts`, whatever the others are.

    `counts` is a pure function of the outcome. Where the number is reached before item `first`, the map ends at the
    next outcome from there on that counts. An `until` function that stops so says it in an attribute `ends`.
    """

    counts: Callable[[Outcome[T]], bool]
    number: int = 1
    first: int = 0


class _Counter(Generic[T]):
    """Counts the outcomes of one `EndsAt`: those released, and the indices of those that wait for their turn."""

    __slots__ = ("_left", "_rule", "_waiting")

    def __init__(self, rule: EndsAt[T]) -> None:
        self._rule = rule
        self._left = rule.number
        self._waiting: list[int] = []

    @property
    def end(self) -> int | None:
        """The least index at which those that have settled reach the number."""
        enough = self._waiting[max(self._left, 1) - 1 :]
        return next((index for index in enough if index >= self._rule.first), None)

    def settle(self, outcome: Outcome[T]) -> None:
        if self._rule.counts(outcome):
            insort(self._waiting, outcome.index)

    def release(self, outcome: Outcome[T]) -> bool:
        """Whether the map ends here; called in item order."""
        if not self._rule.counts(outcome):
            return False
        self._left -= 1
        if self._waiting and self._waiting[0] == outcome.index:
            del self._waiting[0]
        return self._left <= 0 and outcome.index >= self._rule.first


class Halting(Generic[T]):
    """The rule of one map: `until` (a number of successes, or a predicate) and `on_error`."""

    __slots__ = ("_counters", "_predicate", "always_goes_on", "on_error")

    def __init__(self, until: Until[T] = None, on_error: OnError = "collect") -> None:
        """Check both; a bad one is a ValueError or TypeError before anything starts."""
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}")
        rules: list[EndsAt[T]] = []
        self._predicate: Callable[[Outcome[T]], bool] | None = None
        if until is not None:
            if callable(until):
                self._predicate = until
                rules.extend(getattr(until, "ends", ()))
            elif isinstance(until, bool) or not isinstance(until, int):
                raise TypeError(
                    f"until must be a whole number of successes or a function, not {until!r}"
                )
            elif until < 1:
                raise ValueError(f"until must be at least 1, not {until}")
            else:
                rules.append(EndsAt(_is_done, until))
        if on_error != "collect":
            rules.append(EndsAt(_is_not_done))
        self._counters = tuple(_Counter(rule) for rule in rules)
        self.on_error: OnError = on_error
        self.always_goes_on = until is None and on_error == "collect"

    def settle(self, outcome: Outcome[T]) -> None:
        """Take note of an outcome as soon as it is known, in any order; for maps in item order."""
        for counter in self._counters:
            counter.settle(outcome)

    @property
    def foresees(self) -> bool:
        """Whether there are outcomes that end the map whatever came before them."""
        return bool(self._counters)

    @property
    def end(self) -> int | None:
        """The index at which the map ends at the latest, by what has settled.

        None while that is open.
        """
        return min(
            (end for counter in self._counters if (end := counter.end) is not None), default=None
        )

    def stops_at(self, outcome: Outcome[T]) -> bool:
        """Whether the map ends with this outcome; called once for each, in release order."""
        ends = [counter.release(outcome) for counter in self._counters]
        if self._predicate is not None and _answer(self._predicate(outcome)):
            return True
        return any(ends)


def _is_done(outcome: Outcome[T]) -> bool:
    return outcome.ok


def _is_not_done(outcome: Outcome[T]) -> bool:
    return not outcome.ok


def _answer(answer: object) -> bool:
    """Yes or no; a coroutine would always be yes."""
    if isinstance(answer, CoroutineType):
        answer.close()
        raise TypeError(
            "until must be a plain function, not an async one: each outcome is judged as it is released"
        )
    return bool(answer)

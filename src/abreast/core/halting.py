"""When a map stops: decided per outcome in release order, so that timing can't change the result.

Some outcomes end the map regardless of earlier ones: a failure under `on_error="halt"`, the last
success that `until=5` asks for. As soon as such an outcome has settled, the last possible end of
the map is known, long before its turn: `end` gives it, so that no item after it is started and paid
for.
"""

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

    `counts` is a pure function of the outcome. If the number is reached before item `first`, the
    map ends at the next outcome from there on that counts. An `until` function that stops in this
    way declares it in an attribute `ends`.
    """

    counts: Callable[[Outcome[T]], bool]
    number: int = 1
    first: int = 0


class _Counter(Generic[T]):
    """Counts outcomes for one `EndsAt`: those released, and those that wait for their turn."""

    __slots__ = ("_remaining", "_rule", "_settled")

    def __init__(self, rule: EndsAt[T]) -> None:
        self._rule = rule
        self._remaining = rule.number
        self._settled: list[int] = []

    @property
    def end(self) -> int | None:
        """The lowest index at which the settled outcomes reach the number."""
        candidates = self._settled[max(self._remaining, 1) - 1 :]
        return next((index for index in candidates if index >= self._rule.first), None)

    def settle(self, outcome: Outcome[T]) -> None:
        if self._rule.counts(outcome):
            insort(self._settled, outcome.index)

    def release(self, outcome: Outcome[T]) -> bool:
        """Whether the map ends here; called in item order."""
        if not self._rule.counts(outcome):
            return False
        self._remaining -= 1
        if self._settled and self._settled[0] == outcome.index:
            del self._settled[0]
        return self._remaining <= 0 and outcome.index >= self._rule.first


class Halting(Generic[T]):
    """The rule of one map: `until` (a number of successes, or a predicate) and `on_error`."""

    __slots__ = ("_counters", "_predicate", "always_goes_on", "on_error")

    def __init__(self, until: Until[T] = None, on_error: OnError = "collect") -> None:
        """Check both; a wrong one raises ValueError or TypeError before anything starts."""
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}")
        rules: list[EndsAt[T]] = []
        self._predicate: Callable[[Outcome[T]], bool] | None = None
        if until is not None:
            if callable(until):
                self._predicate = until
                rules.extend(getattr(until, "ends", ()))  # a user's function has none
            elif isinstance(until, bool) or not isinstance(until, int):
                raise TypeError(
                    f"until must be a whole number of successes or a function, not {until!r}"
                )
            elif until < 1:
                raise ValueError(f"until must be at least 1, not {until}")
            else:
                rules.append(EndsAt(lambda outcome: outcome.ok, until))
        if on_error != "collect":
            rules.append(EndsAt(lambda outcome: not outcome.ok))
        self._counters = tuple(_Counter(rule) for rule in rules)
        self.on_error: OnError = on_error
        self.always_goes_on = until is None and on_error == "collect"

    def settle(self, outcome: Outcome[T]) -> None:
        """Note an outcome as soon as it is known, in any order; for maps in item order."""
        for counter in self._counters:
            counter.settle(outcome)

    @property
    def foresees(self) -> bool:
        """Whether some outcomes end the map regardless of earlier ones."""
        return bool(self._counters)

    @property
    def end(self) -> int | None:
        """The index at which the map ends at the latest, by what has settled; None if unknown."""
        return min(
            (end for counter in self._counters if (end := counter.end) is not None), default=None
        )

    def stops_at(self, outcome: Outcome[T]) -> bool:
        """Whether the map ends with this outcome; called once for each, in release order."""
        ends = [counter.release(outcome) for counter in self._counters]
        if self._predicate is not None and _as_bool(self._predicate(outcome)):
            return True
        return any(ends)


def _as_bool(answer: object) -> bool:
    """The answer as a bool; a coroutine, which is always true, raises TypeError."""
    if isinstance(answer, CoroutineType):
        answer.close()
        raise TypeError(
            "until must be a plain function, not an async one: "
            "each outcome is judged as it is released"
        )
    return bool(answer)

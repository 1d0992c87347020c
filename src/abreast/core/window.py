"""The window: which items may start, and which outcomes may leave. A pure state machine."""

import math
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")

Order: TypeAlias = Literal["item", "completion"]


def whole(name: str, value: object, least: int = 1) -> int:
    """Return `value` if it is a whole number of at least `least`.

    Otherwise (also for bool and float) raise a ValueError that names it.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        shown = "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)
        raise ValueError(f"{name} must be a whole number of at least {least}, not {shown}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value


class Window(Generic[T]):
    """Bounds one map: at most `width` items executing, at most `span` read and not yet released.

    An item is admitted (gets its index), starts, perhaps pauses and starts again, finishes, and its
    outcome settles. A settled outcome becomes ripe when its turn comes, in item order or in order
    of completion, and is taken when the caller receives it. The halting rule is applied when an
    outcome ripens, while `span` is freed only when it is taken: a slow caller delays the window,
    but not the decision to halt.
    """

    __slots__ = (
        "admitted",
        "executing",
        "order",
        "peak",
        "ripened",
        "settled",
        "span",
        "taken",
        "width",
    )

    def __init__(self, width: int, span: int, order: Order = "item") -> None:
        """Check the numbers; raises ValueError."""
        self.width = whole("width", width)
        self.span = whole("span", span)
        if span < width:
            raise ValueError(f"span must be at least the width ({width}), not {span}")
        if order not in ("item", "completion"):
            raise ValueError(f"order must be 'item' or 'completion', not {order!r}")
        self.order: Order = order
        self.executing = 0
        self.peak = 0
        self.admitted = 0
        self.ripened = 0
        self.taken = 0
        # Until their turn comes: by index, or in order of completion by their number in that order.
        self.settled: dict[int, T] = {}

    def __repr__(self) -> str:
        return (
            f"<Window {self.executing}/{self.width} executing, {self.held}/{self.span} held, "
            f"{self.taken} taken, {self.order} order>"
        )

    @property
    def held(self) -> int:
        """Items read and not yet taken by the caller."""
        return self.admitted - self.taken

    @property
    def may_admit(self) -> bool:
        """Whether another item may be read."""
        return self.admitted - self.taken < self.span

    @property
    def may_start(self) -> bool:
        """Whether another item may execute."""
        return self.executing < self.width

    @property
    def unripe(self) -> int:
        """Items admitted whose outcome is not ripe yet."""
        return self.admitted - self.ripened

    def admit(self) -> int:
        """Admit one more item and return its index."""
        if self.admitted - self.taken >= self.span:
            raise RuntimeError(f"admitted past the span: {self!r}")
        index = self.admitted
        self.admitted = index + 1
        return index

    def start(self) -> None:
        """Count one more item as executing."""
        executing = self.executing + 1
        if executing > self.width:
            raise RuntimeError(f"started past the width: {self!r}")
        self.executing = executing
        if executing > self.peak:  # noqa: PLR1730 - max() takes six times as long, for every item
            self.peak = executing

    def finish(self) -> None:
        """Count one item fewer as executing: it ended, or pauses for a limit or a backoff."""
        if self.executing <= 0:
            raise RuntimeError(f"finished more than was started: {self!r}")
        self.executing -= 1

    def settle(self, index: int, outcome: T) -> None:
        """Hold the outcome of item `index` until its turn comes."""
        turn = index if self.order == "item" else self.ripened + len(self.settled)
        is_new = index < self.admitted and self.ripened <= turn < self.admitted
        if not is_new or turn in self.settled:
            raise RuntimeError(f"item {index} can't settle, it isn't under way: {self!r}")
        self.settled[turn] = outcome

    def ripen(self) -> T | None:
        """Remove and return the outcome whose turn has come; None if it has not settled."""
        outcome = self.settled.pop(self.ripened, None)
        if outcome is not None:
            self.ripened += 1
        return outcome

    def unripen(self, index: int, outcome: T) -> None:
        """Put back the outcome that `ripen` just returned, as it isn't ready (item order only)."""
        self.ripened = index
        self.settled[index] = outcome

    def replace(self, index: int, outcome: T) -> None:
        """Replace a held outcome by another form of it (item order only)."""
        if index in self.settled:
            self.settled[index] = outcome

    def upcoming(self, most: int) -> list[T]:
        """At most `most` outcomes held for the next turns, without a gap (item order only)."""
        found: list[T] = []
        for index in range(self.ripened, self.ripened + most):
            outcome = self.settled.get(index)
            if outcome is None:
                break
            found.append(outcome)
        return found

    def take(self) -> None:
        """Count one ripe outcome as given to the caller, which frees a place in the span."""
        if self.taken >= self.ripened:
            raise RuntimeError(f"took an outcome that isn't ripe: {self!r}")
        self.taken += 1

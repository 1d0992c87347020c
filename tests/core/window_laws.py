"""The laws of the window, checked by a driver that makes every call a window allows.

The driver counts by itself and asks the window only what a driver asks, so that a wrong window
can't confirm itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from abreast.core.window import Window

Choose = Callable[[int], int]
"""Chooses one of so many: the schedule."""


class LawBroken(AssertionError):
    """A law does not hold; the message says which."""


def hold_to_the_laws(window: Window[tuple[str, int]], count: int, choose: Choose) -> list[int]:
    """Take `count` items through the window by the schedule that `choose` makes.

    Returns the indices in the order of release.
    """
    return _Driver(window, count, choose).drive()


class _Driver:
    def __init__(self, window: Window[tuple[str, int]], count: int, choose: Choose) -> None:
        self.window, self.count, self.choose = window, count, choose
        self.read = 0
        self.peak = 0
        self.waiting: list[int] = []
        self.executing: list[int] = []
        self.arrived: list[int] = []
        self.ripe: deque[int] = deque()
        self.released: list[int] = []

    def drive(self) -> list[int]:
        while len(self.released) < self.count:
            self.do_all_that_is_allowed()
            self.check_bounds()
            self.make_one_move()
        self.check_the_end()
        return self.released

    @property
    def held(self) -> int:
        return self.read - len(self.released)

    def do_all_that_is_allowed(self) -> None:
        window = self.window
        while self.read < self.count and window.may_admit:
            law(window.admit() == self.read, "items are counted in the order they are read")
            self.waiting.append(self.read)
            self.read += 1
            law(self.held <= window.span, "held <= span")
        while self.waiting and window.may_start:
            window.start()
            self.executing.append(self.waiting.pop(self.choose(len(self.waiting))))
            law(len(self.executing) <= window.width, "executing <= width")
            self.peak = max(self.peak, len(self.executing))

    def check_bounds(self) -> None:
        """Check that the bounds are reached: a window that allows nothing would keep them too."""
        window = self.window
        law(
            not self.waiting or len(self.executing) == window.width,
            "no place idles while an item could use it",
        )
        law(
            self.read == self.count or self.held == window.span,
            "no item is left unread while the span has room",
        )
        law(
            (window.executing, window.held) == (len(self.executing), self.held),
            "the window counts right",
        )
        law(window.peak == self.peak, "the peak is exact")

    def make_one_move(self) -> None:
        """End or pause an item, or let the caller take an outcome."""
        moves = [self.end, self.end, self.pause] if self.executing else []
        if self.ripe:
            moves.append(self.take)
        law(bool(moves), "something can always happen until all is released")
        moves[self.choose(len(moves))]()

    def end(self) -> None:
        index = self.executing.pop(self.choose(len(self.executing)))
        self.arrived.append(index)
        self.window.finish()
        self.window.settle(index, ("outcome", index))
        while (outcome := self.window.ripen()) is not None:
            self.ripe.append(outcome[1])

    def pause(self) -> None:
        self.waiting.append(self.executing.pop(self.choose(len(self.executing))))
        self.window.finish()

    def take(self) -> None:
        self.window.take()
        self.released.append(self.ripe.popleft())
        if self.window.order == "item":
            law(
                self.released[-1] == len(self.released) - 1,
                "outcomes leave in item order, each once",
            )
        else:
            law(
                self.released[-1] == self.arrived[len(self.released) - 1],
                "outcomes leave as they arrived, each once",
            )

    def check_the_end(self) -> None:
        window = self.window
        law(sorted(self.released) == list(range(self.count)), "every outcome leaves exactly once")
        law((window.executing, window.held, window.unripe) == (0, 0, 0), "nothing is left inside")
        law(window.ripen() is None, "nothing more ripens")


def law(holds: bool, sentence: str) -> None:
    if not holds:
        raise LawBroken(sentence)

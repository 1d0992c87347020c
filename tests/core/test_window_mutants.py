"""The laws can fail: each of these windows is wrong in one way, and the laws name it."""

from __future__ import annotations

from random import Random

import pytest

from abreast.core.window import Window
from tests.core.window_laws import LawBroken, hold_to_the_laws

WIDTH, SPAN, COUNT = 3, 7, 20
SCHEDULES = range(20)


class Serial(Window[tuple[str, int]]):
    """Executes one at a time, whatever the width."""

    @property
    def may_start(self) -> bool:
        return self.executing < 1


class Unbounded(Window[tuple[str, int]]):
    """Starts everything at once."""

    @property
    def may_start(self) -> bool:
        return True

    def start(self) -> None:
        self.executing += 1
        self.peak = max(self.peak, self.executing)


class CompletionOrdered(Window[tuple[str, int]]):
    """Releases outcomes in the order in which they settled."""

    def settle(self, index: int, outcome: tuple[str, int]) -> None:
        self.settled[self.ripened + len(self.settled)] = outcome


class Leaking(Window[tuple[str, int]]):
    """Never frees the place of an item that has ended."""

    def finish(self) -> None:
        pass


@pytest.mark.parametrize("seed", SCHEDULES)
def test_the_window_keeps_the_laws_under_the_schedules_that_catch_its_mutants(seed):
    assert hold_to_the_laws(Window(WIDTH, SPAN), COUNT, Random(seed).randrange) == list(
        range(COUNT)
    )


@pytest.mark.parametrize(
    ("mutant", "broken"),
    [
        (Serial, "no place idles while an item could use it"),
        (Unbounded, "executing <= width"),
        (CompletionOrdered, "outcomes leave in item order, each once"),
        (Leaking, "no place idles while an item could use it|the window counts right"),
    ],
)
@pytest.mark.parametrize("seed", SCHEDULES)
def test_a_window_that_is_wrong_breaks_a_law(mutant, broken, seed):
    with pytest.raises(LawBroken, match=broken):
        hold_to_the_laws(mutant(WIDTH, SPAN), COUNT, Random(seed).randrange)

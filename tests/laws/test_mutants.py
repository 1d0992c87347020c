"""Each mutant breaks a law: a serial, an unbounded, a completion-ordered, a leaking one."""

import asyncio

import pytest

import abreast
from abreast.core.window import Window
from abreast.run.map import scheduler
from tests.turns import turns

WIDTH, COUNT, TURNS = 3, 9, 400


class Broken(AssertionError):
    """A law does not hold."""


async def the_laws() -> None:
    """Check bounds, the peak, order and the end, in a bounded number of turns of the loop."""
    inside = peak = 0
    held = {index: asyncio.Event() for index in range(COUNT)}

    async def work(item):
        nonlocal inside, peak
        inside += 1
        peak = max(peak, inside)
        try:
            await held[item].wait()
        finally:
            inside -= 1
        return item

    async def main():
        async with abreast.open_run("law") as run:
            return [
                outcome.value
                async for outcome in run.map(work, range(COUNT), width=WIDTH, span=COUNT)
            ]

    task = asyncio.ensure_future(main())
    try:
        await turns(20)
        if peak != WIDTH:
            raise Broken(f"{peak} executed at once, and the width is {WIDTH}")
        for index in reversed(range(COUNT)):
            held[index].set()
            await turns(5)
        await turns(TURNS)
        if not task.done():
            raise Broken("items are left that never start")
        if task.result() != list(range(COUNT)):
            raise Broken(f"out of order: {task.result()}")
    finally:
        task.cancel()
        await asyncio.wait([task])


class Serial(Window):
    def __init__(self, width, span, order="item"):
        super().__init__(1, span, order)


class Unbounded(Window):
    def __init__(self, width, span, order="item"):
        super().__init__(span, span, order)


class CompletionOrdered(Window):
    def __init__(self, width, span, order="item"):
        super().__init__(width, span, "completion")


class Leaking(Window):
    """Never gives a place back: what executes is only ever counted up."""

    executing = property(
        lambda self: self.__dict__.get("count", 0), lambda self, count: self.count_up(count)
    )

    def count_up(self, count):
        self.__dict__["count"] = max(count, self.__dict__.get("count", 0))


async def test_the_real_window_holds_the_laws():
    await the_laws()


@pytest.mark.parametrize(
    ("mutant", "complaint"),
    [
        (Serial, "1 executed at once"),
        (Unbounded, "9 executed at once"),
        (CompletionOrdered, "out of order"),
        (Leaking, "never start"),
    ],
)
async def test_a_mutant_breaks_a_law(mutant, complaint, monkeypatch):
    monkeypatch.setattr(scheduler, "Window", mutant)
    with pytest.raises(Broken, match=complaint):
        await the_laws()

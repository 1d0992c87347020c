"""A run with a store: a map, and a step that adds its values up; a budget that is spent."""

# pyright: strict

import asyncio
from pathlib import Path
from typing import assert_type

import abreast


async def measure(word: str) -> int:
    """As a call of a provider would be."""
    await asyncio.sleep(0)
    return len(word)


def add(numbers: list[int], first: int) -> int:
    """The step."""
    return sum(numbers, first)


async def run_once(store: Path, budget: str) -> int | None:
    """Return the total; None if the budget is too small."""
    try:
        async with abreast.open_run("words", store=store, budget=budget, seed=1) as run:
            assert_type(run, abreast.Run)
            outcomes = run.map(measure, ["one", "three", "eleven"], width=2)
            assert_type(outcomes, abreast.Map[str, int])
            lengths = await outcomes.values()
            assert_type(lengths, list[int])
            total = await run.step("total", add, lengths, 0)
            assert_type(total, int)
            longest = await run.step("longest", measure, "seventeen", retry=1)
            assert_type(longest, int)
            return total + longest
    except abreast.errors.BudgetSpent as spent:
        print(spent)
        return None


def main() -> None:
    """Run it with too small a budget, and go on with a larger one."""
    for budget in ("2req", "9req"):
        print(asyncio.run(run_once(Path("runs.db"), budget)))


if __name__ == "__main__":
    main()

"""A map over an async function and over a plain one; what failed is printed."""

# pyright: strict

import asyncio
from collections.abc import Iterator
from typing import assert_type

import abreast


def inverse(number: int) -> float:
    """Fails for 0."""
    return 1 / number


async def shout(word: str) -> str:
    """As a call of a provider would be."""
    await asyncio.sleep(0)
    return word.upper()


def lines() -> Iterator[str]:
    """The `for` loop of the README."""
    outcomes = abreast.map(inverse, [1, 2, 0], width=2)
    assert_type(outcomes, Iterator[abreast.Outcome[float]])
    for outcome in outcomes:
        yield f"{outcome.key} {outcome.value if outcome.ok else outcome.error}"


def total(outcomes: Iterator[abreast.Outcome[float]]) -> float:
    """Narrowed by `ok`, and by class."""
    added = 0.0
    for outcome in outcomes:
        if outcome.ok is True:
            assert_type(outcome, abreast.Done[float])
            added += outcome.value
        elif isinstance(outcome, abreast.Failed):
            assert_type(outcome.error, BaseException)
        else:
            assert_type(outcome.error, abreast.errors.ItemCancelled)
    return added


def loud(words: list[str]) -> list[str]:
    """An async function, from code that isn't."""
    outcomes = abreast.map(shout, words, width=2, key=lambda word: word[:1])
    assert_type(outcomes, Iterator[abreast.Outcome[str]])
    return [outcome.value for outcome in outcomes]


def keyed() -> dict[str, str]:
    """Items with keys of their own."""
    items = [abreast.Item("first", "a"), abreast.Item("second", "b")]
    outcomes = abreast.map(shout, items, width=2)
    return {outcome.key: outcome.value for outcome in outcomes}


def main() -> None:
    """Print them."""
    print(*lines(), sep="\n")
    print(total(abreast.map(inverse, [1, 2, 0], width=2)))
    print(*loud(["a", "b"]), keyed())


if __name__ == "__main__":
    main()

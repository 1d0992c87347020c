"""A sample with checks of every kind: draws until one passes."""

# pyright: strict

import asyncio
from typing import assert_type

from pydantic import BaseModel

import abreast
from abreast import checks
from abreast.jobs.sample.results import SampleResult
from abreast.models.port import Request
from abreast.testing import ScriptedModel


class Colour(BaseModel):
    """What is asked for."""

    name: str


def is_short(text: str) -> tuple[bool, str]:
    """A check of one's own."""
    return len(text) < 20, "it is too long"


def say(request: Request) -> str:
    """The scripted model's answer: one in three is red."""
    name = "red" if (request.seed or 0) % 3 == 0 else "some long name"
    return f'{{"name": "{name}"}}'


async def draw() -> SampleResult[Colour]:
    """Draw with a strategy, and be told beforehand what it may cost."""
    model = ScriptedModel(say)
    wanted = [is_short, checks.contains("red"), checks.is_json()]
    worst = abreast.dry_run_sample("Name a colour.", model=model, checks=wanted, depth=20)
    assert_type(worst.worst_requests, int)
    strategy = abreast.strategies.Repair()
    result = await abreast.sample(
        "Name a colour.", model=model, checks=wanted, depth=20, strategy=strategy, schema=Colour
    )
    assert_type(result, SampleResult[Colour])
    return result


def main() -> None:
    """Print the colour."""
    result = asyncio.run(draw())
    if result.value is not None:
        print(result.ok, result.value.name)


if __name__ == "__main__":
    main()

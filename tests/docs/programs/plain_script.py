"""The blocking twin of `abreast.sample`, in a script without asyncio."""

# pyright: strict

from typing import assert_type

from pydantic import BaseModel

import abreast
from abreast.jobs.sample.results import SampleResult
from abreast.testing import ScriptedModel


class Answer(BaseModel):
    """What is asked for."""

    yes: bool


def main() -> None:
    """Ask with a class as the schema, and without."""
    typed = abreast.sync.sample(
        "Is it so?", model=ScriptedModel(lambda request: '{"yes": true}'), schema=Answer
    )
    assert_type(typed, SampleResult[Answer])
    plain = abreast.sync.sample("Is it so?", model=ScriptedModel(lambda request: "yes"), breadth=2)
    assert_type(plain, SampleResult)
    print(typed.value, plain.text, [attempt.state for attempt in plain.attempts])


if __name__ == "__main__":
    main()

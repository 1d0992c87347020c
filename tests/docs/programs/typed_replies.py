"""A model asked for a pydantic model: the reply's value is one."""

# pyright: strict

import asyncio
from typing import assert_type

from pydantic import BaseModel

import abreast
from abreast.models.port import Json
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import ScriptedModel


class Recipe(BaseModel):
    """What is asked for."""

    name: str
    minutes: int


async def ask(model: Caller) -> Recipe:
    """Ask with a class, with a schema, and without."""
    reply = await model.ask("A quick soup, please.", schema=Recipe)
    assert_type(reply, abreast.Reply[Recipe])
    assert_type(reply.usage, abreast.Usage)
    plain = await model.ask("A quick soup, please.", schema={"type": "object"}, max_tokens=50)
    assert_type(plain.value, Json)
    assert_type(await model.ask("Hello."), abreast.Reply)
    return reply.value


async def recipes(model: Caller) -> list[Recipe]:
    """The same in a map."""

    async def recipe(soup: str) -> Recipe:
        return (await model.ask(f"{soup} soup, please.", schema=Recipe)).value

    async with abreast.open_run("recipes", types=[Recipe]) as run:
        return await run.map(recipe, ["Leek", "Pea"], width=2).values()


def main() -> None:
    """Ask a scripted model; `abreast.open_model("local/smollm2")` gives a real one."""
    scripted: abreast.Model = ScriptedModel(lambda request: '{"name": "Leek soup", "minutes": 20}')
    model = Caller(scripted, ModelLane("kitchen"))
    print(asyncio.run(ask(model)).minutes)
    print([recipe.minutes for recipe in asyncio.run(recipes(model))])


if __name__ == "__main__":
    main()

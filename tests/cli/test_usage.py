"""What a run used: every command and the page say the same."""

import asyncio
from contextlib import closing

import pytest

import abreast as library
from abreast.core.outcome import Usage
from abreast.models.port import Reply
from abreast.models.price import FlatPrice
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.store.sqlite.store import SqliteStore
from abreast.web import pages
from abreast.web.pages import PageSource

CALLS = 3 * (
    1 + 2 + 1
)  # of three items: one of its own, two in a map beneath it, one in a step beneath that


class Echo:
    """A model that answers with the prompt."""

    name = "test/echo"

    async def complete(self, request, hear=None):
        return Reply(request.messages[-1].content, usage=Usage(1, 10, 5))

    async def close(self):
        """Nothing is open."""


@pytest.fixture
def nested(abreast):
    """A run whose items ask a model: directly, in a nested map, and in a step of its items."""
    model = Caller(Echo(), ModelLane("test", ()), price=FlatPrice(1.0, 2.0))

    async def ask(text):
        return (await model.ask(text)).text

    async def beneath(number):
        if number:
            await library.current().run.step("deep", ask, "deep")
        return await ask(f"beneath {number}")

    async def item(number):
        await ask(f"item {number}")
        return await library.current().run.map(beneath, range(2), width=2).values()

    async def main():
        abreast.store.parent.mkdir(exist_ok=True)
        async with library.open_run("nested", store=str(abreast.store)) as run:
            return [outcome async for outcome in run.map(item, range(3), width=2)]

    assert all(outcome.ok for outcome in asyncio.run(main()))
    return abreast


def test_watch_show_export_and_the_page_say_the_same_of_a_run_with_nested_items(nested):
    (shown,) = nested("show", "nested-1", "--json").rows
    used = shown["usage"]["test/echo"]
    assert (used["requests"], used["input_tokens"], used["output_tokens"]) == (
        CALLS,
        10 * CALLS,
        5 * CALLS,
    )
    usd = pytest.approx(used["usd"])

    (watched,) = nested("watch", "nested-1", "--once", "--json").rows
    names = ("requests", "input_tokens", "output_tokens", "usd")
    assert tuple(watched["spent"][name] for name in names) == (CALLS, 10 * CALLS, 5 * CALLS, usd)
    assert f"{CALLS} req, {15 * CALLS} tok" in nested("watch", "nested-1", "--once").out

    exported = [row for row in nested("export", "nested-1").rows if row["map"] == "nested/item"]
    assert sum(row["requests"] for row in exported) == CALLS
    assert sum(row["usd"] for row in exported) == usd

    with closing(SqliteStore(nested.store)) as store:
        desk = PageSource(store)
        head = pages.head(desk, "nested-1", {})["usage"]
        assert (head["requests"], head["input"], head["output"], head["usd"]) == (
            CALLS,
            10 * CALLS,
            5 * CALLS,
            usd,
        )
        (line,) = pages.runs(desk, {})["runs"]
        assert (line["tokens"], line["usd"]) == (15 * CALLS, usd)

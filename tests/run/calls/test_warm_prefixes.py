"""Prompts that begin alike: one goes ahead, the others find its beginning cached."""

import asyncio

import pytest

import abreast
from abreast.core.errors import ServerFault
from abreast.models.lanes import read_lanes
from abreast.models.port import Reply, Request
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate
from abreast.testing.storm import open_storm
from tests.turns import turns

LONG = "word " * 1200


class Held:
    """Holds every call until the gate opens it; the first ones may fail."""

    name = "test/held"

    def __init__(self, failures: int = 0) -> None:
        self.gate = Gate()
        self.failures = failures

    async def complete(self, request: Request, hear: object = None) -> Reply:
        text = request.messages[-1].content.removeprefix(LONG)
        await self.gate.pass_(text)
        if self.failures:
            self.failures -= 1
            raise ServerFault("it fell over")
        return Reply(text)

    async def close(self) -> None: ...


def asking(model: Caller, count: int = 5, shared: int | None = len(LONG)) -> list[asyncio.Task]:
    return [
        asyncio.ensure_future(model.ask(f"{LONG}{n}", shared_prefix=shared)) for n in range(count)
    ]


async def held(model: Held, count: int) -> list[str]:
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(model.gate.held) == count
    return list(model.gate.held)


async def test_one_goes_ahead_and_the_others_follow_its_reply() -> None:
    model = Held()
    calls = asking(Caller(model, ModelLane("test"), warm=True))
    assert await held(model, 1) == ["0"]
    model.gate.open("0")
    await held(model, 4)
    model.gate.open_all()
    assert [(await call).text for call in calls] == ["0", "1", "2", "3", "4"]


async def test_if_the_first_fails_the_next_goes_ahead() -> None:
    model = Held(failures=1)
    calls = asking(Caller(model, ModelLane("test"), warm=True, retry=None))
    await held(model, 1)
    model.gate.open("0")
    assert await held(model, 1) == ["1"]
    calls[1].cancel()
    assert await held(model, 1) == ["2"]
    model.gate.open_all()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(end, Reply) for end in ended] == [False, False, True, True, True]


async def test_an_item_lends_its_place_on_the_lane_while_its_call_waits() -> None:
    """Else those that hold all places would wait for the one ahead, and it for a place."""
    model = Held()
    model.gate.open_all()
    slots = abreast.Slots(2)
    caller = Caller(model, ModelLane("test", [slots]), warm=True)
    together = asyncio.Barrier(3)

    async def ask(number: int) -> str:
        await together.wait()
        await turns(10 if number else 0)  # the first asks while the others hold all places
        return (await caller.ask(f"{LONG}{number}", shared_prefix=len(LONG))).text

    def lane(number: int) -> str | None:
        return "test" if number else None

    async with (
        abreast.open_run("warm", lanes={"test": slots}) as run,
        asyncio.timeout(60),
        run.map(ask, range(3), width=3, lane=lane) as outcomes,
    ):
        assert [outcome.value async for outcome in outcomes] == ["0", "1", "2"]
    assert slots.taken == 0


@pytest.mark.parametrize(("warm", "shared"), [(False, len(LONG)), (True, None), (True, 100)])
async def test_without_a_long_shared_beginning_nothing_waits(warm: bool, shared: int) -> None:
    model = Held()
    calls = asking(Caller(model, ModelLane("test"), warm=warm), shared=shared)
    await held(model, 5)
    model.gate.open_all()
    await asyncio.gather(*calls)


async def test_the_server_reads_what_is_shared_from_its_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARM_KEY", "sk-warm")
    async with open_storm(strict="anthropic-new") as storm:
        lane = {"kind": "anthropic", "base_url": f"{storm.url}/v1", "api_key_env": "WARM_KEY"}
        lanes = read_lanes({"claude": lane}, "here")
        async with abreast.open_model("claude/opus", lanes=lanes, warm=True) as model:
            requests = [
                model.ask(f"{LONG}{n}", system="Be brief.", shared_prefix=len(LONG))
                for n in range(6)
            ]
            replies = await asyncio.gather(*requests)
            alone = await model.ask(f"{LONG}alone", system="Be brief.")
    written = [reply.usage.cache_write_tokens for reply in replies]
    read = [reply.usage.cached_input_tokens for reply in replies]
    assert sum(1 for tokens in written if tokens > 1024) == 1
    assert sum(1 for tokens in read if tokens > 1024) == 5
    assert alone.usage.cached_input_tokens == alone.usage.cache_write_tokens == 0

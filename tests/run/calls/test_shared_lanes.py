"""Shared lanes: runs and processes with one store keep one set of limits."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

import abreast
from abreast.core.errors import LaneNeedsStore, LaneParked, Throttled
from abreast.core.outcome import Usage
from abreast.limits.shared.ledger import Terms
from abreast.models.port import Reply
from abreast.models.price import FlatPrice
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.run.calls.permit import LanePermit
from abreast.run.item_state import current_state
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import MemoryStore
from abreast.testing.storm import start_process
from tests.turns import until


class Server:
    """A model that counts its calls, and answers each group of `together` calls at once."""

    name = "team/x"

    def __init__(self, together=1, fault=None):
        self.peak = self.now = self.answered = 0
        self._together = together
        self._fault = fault
        self._all_here = asyncio.Event()

    async def complete(self, request, hear=None):
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            if self._fault is not None and (error := self._fault(request)) is not None:
                raise error
            if self.now >= self._together:
                self._all_here.set()
            await self._all_here.wait()
        finally:
            self.now -= 1
        self.answered += 1
        return Reply("yes", usage=Usage(1, 10, 5))

    async def close(self):
        pass


def caller(server, terms):
    lane = ModelLane("team", held=[abreast.Slots(9)], terms=terms)
    return Caller(server, lane, retry=abreast.Retry(0), price=FlatPrice(input=1.0, output=1.0))


def ledger(store):
    return json.loads(store.ledgers()["team"])


async def ask_all(store, model, calls, name="r"):
    async def ask(_):
        return (await model.ask("?", max_tokens=10)).text

    async with abreast.open_run(name, store=store, resume="never") as run:
        return [outcome async for outcome in run.map(ask, range(calls), width=16)]


async def test_two_runs_with_one_store_have_one_set_of_slots():
    store, server = MemoryStore(), Server(together=3)
    terms = Terms(3)
    both = [ask_all(store, caller(server, terms), 12, name) for name in ("one", "two")]
    outcomes = await asyncio.gather(*both)
    assert all(outcome.ok for each in outcomes for outcome in each)
    assert server.peak == 3
    assert ledger(store)["holders"] == {}


async def test_runs_with_stores_of_their_own_share_nothing():
    server = Server(together=6)
    both = [ask_all(MemoryStore(), caller(server, Terms(3)), 12) for _ in range(2)]
    await asyncio.gather(*both)
    assert server.peak == 6


async def test_a_run_without_a_store_is_told_so():
    model = caller(Server(), Terms(3))
    [outcome] = await ask_all(None, model, 1)
    assert isinstance(outcome.error, LaneNeedsStore) or "store" in str(outcome.error)
    with pytest.raises(LaneNeedsStore, match="lane team is shared"):
        await model.ask("?")


async def test_a_lane_that_the_run_declares_goes_before_the_shared_one():
    server = Server(together=2)
    model = caller(server, Terms(1))
    lanes = {"team": abreast.Slots(2)}
    async with abreast.open_run("r", store=MemoryStore(), lanes=lanes) as run:
        outcomes = [each async for each in run.map(lambda _: model.ask("?"), range(4), width=4)]
    assert all(outcome.ok for outcome in outcomes)
    assert server.peak == 2


async def test_a_429_to_one_run_holds_the_lane_for_the_other():
    store = MemoryStore()
    refused = [Throttled("slow down", retry_after=1000.0)]
    sent = asyncio.Event()

    def fault(_):
        sent.set()
        return refused.pop() if refused else None

    model = caller(Server(fault=fault), Terms(3))
    one = asyncio.ensure_future(ask_all(store, model, 1, "one"))
    await sent.wait()
    await until(lambda: ledger(store)["hold_until"])
    second = Server()
    other = asyncio.ensure_future(ask_all(store, caller(second, Terms(3)), 1, "two"))
    await until(lambda: len(ledger(store)["holders"]) == 2)
    for task in (one, other):
        task.cancel()
    await asyncio.gather(one, other, return_exceptions=True)
    assert second.answered == 0


async def test_one_budget_of_two_runs_parks_the_lane_of_both():
    store, server = MemoryStore(), Server()
    terms = Terms(8, {}, {"usd": 0.0005})
    both = [ask_all(store, caller(server, terms), 40, name) for name in ("one", "two")]
    ends = await asyncio.gather(*both, return_exceptions=True)
    assert all(isinstance(end, LaneParked) for end in ends)
    assert 0 < server.answered * 15e-6 <= 0.0005


async def test_a_place_on_the_lane_for_other_work_is_one_of_the_shared_slots():
    store, server = MemoryStore(), Server()
    model = caller(server, Terms(1, {"requests": 6000}))
    taken = []

    async def work(_):
        permit = LanePermit(model, current_state())
        await permit.take()
        taken.append(ledger(store)["holders"])
        permit.give()

    async with abreast.open_run("r", store=store) as run:
        outcomes = [each async for each in run.map(work, range(3), width=3)]
    assert all(outcome.ok for outcome in outcomes), [outcome.error for outcome in outcomes]
    assert [sum(each["slots"] for each in holders.values()) for holders in taken] == [1, 1, 1]


# --- processes

LANE = """
[lanes.team]
base_url = "{url}/v1"
width = 4
shared = true
{more}
"""


def driver(folder, calls):
    inputs = folder / f"questions-{calls}.txt"
    inputs.write_text("".join(f"question {number}\n" for number in range(calls)))
    with inputs.open("rb") as lines:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "abreast", "map", "--store", "runs.db", "--quiet"),
                *("--prompt", "{}", "--model", "team/any", "--max-tokens", "20", "--width", "16"),
            ],
            stdin=lines,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def test_three_processes_keep_one_width_and_a_killed_one_gives_its_permits_back(tmp_path):
    with start_process(concurrency=4, latency=0.1) as storm:
        (tmp_path / "abreast.toml").write_text(LANE.format(url=storm.url, more=""))
        children = [driver(tmp_path, 12) for _ in range(3)]
        assert [child.wait() for child in children] == [0, 0, 0]
        log = storm.log()
        assert len(log) == 36
        assert {entry.outcome for entry in log} == {"ok"}
        assert max(entry.in_flight for entry in log) + 1 == 4
        storm.change(latency=600.0)
        killed = driver(tmp_path, 4)
        while len(storm.log(since=36)) < 4:
            assert killed.poll() is None
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        storm.change(latency=0.0)
        assert driver(tmp_path, 4).wait() == 0
    store = SqliteStore(tmp_path / "runs.db")
    assert ledger(store)["holders"] == {}
    store.close()

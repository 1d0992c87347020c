"""Seconds of calls that an earlier driver recorded: counted once, and only for their outcome."""

import asyncio

import pytest

import abreast
from abreast.core.errors import Halted, ServerFault
from abreast.core.outcome import Usage
from abreast.jobs.matrix.call_notes import CallAttempt, CellNotes, earlier_seconds
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import MemoryStore


class Takes:
    """A model whose replies say that they took half a second; the first attempt fails."""

    name = "test/takes"

    def __init__(self):
        self.sent = 0

    async def complete(self, request, hear=None):
        self.sent += 1
        if self.sent == 1:
            raise ServerFault("not now", status=500)
        return Reply("said", usage=Usage(1, 2, 3), seconds=0.5)

    async def close(self):
        pass


async def driven(store, model, *, stops=(), value=0, **opening):
    """A step that makes three calls, and stops after those in `stops`.

    The seconds that it found recorded.
    """

    async def reply(_):
        work = abreast.current()
        found = await earlier_seconds(work)
        for number in range(3):
            await model.ask(f"question {number}")
            if number in stops:
                work.run.context.root.halt("stopped")
                await asyncio.get_running_loop().create_future()
        return found

    async with abreast.open_run("r", store=store, **opening) as run:
        return await run.step("reply", reply, value, on_change="rerun")


def caller(model):
    return Caller(model, ModelLane("test"), retry=abreast.Retry(2, base=0.0, cap=0.0))


async def test_recorded_calls_are_counted_and_what_failed_of_them_apart():
    store, model = MemoryStore(), caller(Takes())
    with pytest.raises(Halted):
        await driven(store, model, stops=[1])
    found = await driven(store, model)
    assert set(found) == {"queue_s", "backoff_s", "service_s"}
    assert found["service_s"] == 1.0  # of two calls
    assert all(seconds >= 0 for seconds in found.values())


async def test_nothing_is_recorded_at_first_and_in_a_run_without_a_store():
    assert await driven(MemoryStore(), caller(Takes())) == {}
    assert await driven(None, caller(Takes())) == {}


async def test_calls_of_an_outcome_that_is_superseded_are_not_counted():
    store, model = MemoryStore(), caller(Takes())
    assert await driven(store, model) == {}
    # It runs again, because its value has changed.
    assert await driven(store, model, value=1, run_id="r-1") == {}


def test_the_seconds_of_a_resumed_cell_are_those_of_all_its_calls():
    notes = CellNotes(
        10.0, [CallAttempt(11.0, 13.0, "done", 1, 2.0)], earlier={"queue_s": 0.5, "service_s": 3.0}
    )
    assert notes.times() == {
        "queue_s": 1.5,
        "hold_s": 0.0,
        "backoff_s": 0.0,
        "service_s": 5.0,
        "wall_s": 6.5,
    }

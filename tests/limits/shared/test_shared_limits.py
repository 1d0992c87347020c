"""Lanes of items and steps that several drivers keep together."""

import asyncio
from contextlib import closing

import pytest

import abreast
from abreast.core.errors import BudgetSpent, LaneNeedsStore
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import Gate


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "runs.db")


class Counted:
    """Items that wait at a gate, and how many of them were in it at once."""

    def __init__(self):
        self.gate, self.inside, self.most = Gate(), 0, 0
        self.full = asyncio.Event()

    async def work(self, item):
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == 3:
            self.full.set()
        await self.gate.pass_(item)
        self.inside -= 1
        return item


async def drive(path, counted, name, items):
    lanes = {"render": abreast.SharedLimits(3)}
    with closing(SqliteStore(path)) as store:
        async with abreast.open_run(name, store=store, lanes=lanes) as run:
            return await run.map(counted.work, items, width=6, lane="render").values()


async def test_items_of_two_drivers_never_hold_more_than_the_slots_and_all_of_them(path):
    counted = Counted()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        first = group.create_task(drive(path, counted, "one", range(6)))
        second = group.create_task(drive(path, counted, "two", range(6, 12)))
        await counted.full.wait()
        counted.gate.open(*range(12))
    assert first.result() == list(range(6))
    assert second.result() == list(range(6, 12))
    assert counted.most == 3


async def test_a_budget_is_one_for_all_runs_and_children_share_it_too(path):
    async def work(item):
        return item

    lanes = {"render": abreast.SharedLimits(3, rpm=60_000, budget="4req")}
    with closing(SqliteStore(path)) as store:
        async with abreast.open_run("one", store=store, lanes=lanes) as run:
            assert await run.map(work, range(3), width=2, lane="render").values() == [0, 1, 2]
        with pytest.raises(BudgetSpent):  # one is left for all
            async with (
                abreast.open_run("two", store=store) as run,
                run.child("c", lanes=lanes) as c,
            ):
                async for _ in c.map(work, range(3), width=2, lane="render"):
                    pass


async def test_without_a_store_it_is_refused():
    with pytest.raises(LaneNeedsStore, match="lane render is shared"):
        async with abreast.open_run("x", lanes={"render": abreast.SharedLimits(3)}):
            pass


@pytest.mark.parametrize("given", [{"slots": 0}, {"slots": 2, "rpm": 0}, {"slots": 2, "tpm": -1}])
def test_a_wrong_number_is_refused(given):
    with pytest.raises(ValueError, match=r"slots|rpm|tpm"):
        abreast.SharedLimits(**given)

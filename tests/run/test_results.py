"""How a run ended, by what came of its items."""

from collections import Counter

import pytest

import abreast
from abreast.core.errors import ServerFault
from abreast.core.events import RUN_ENDED
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import MemoryStore


class Down:
    """A model that never answers."""

    name = "test/down"

    async def complete(self, request, hear=None):
        raise ServerFault("down")

    async def close(self):
        """Nothing is open."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")
    yield store
    store.close()


async def fails(value):
    raise LookupError(f"no {value}")


async def odd_fails(value):
    if value % 2:
        raise LookupError(f"no {value}")
    return value


async def drain(outcomes):
    return [outcome async for outcome in outcomes]


def ended(store, run="script-1"):
    row = store.get(run)
    [event] = store.events(run, kinds={RUN_ENDED})
    assert (event.data["state"], event.data["reason"]) == (row.state, row.reason)
    return row.state, row.reason


async def test_a_run_of_a_script_in_which_all_items_failed_has_failed(store):
    async with abreast.open_run("script", store=store) as run:
        await drain(run.map(fails, range(2), width=2, name="one"))
        await drain(run.map(fails, range(3), width=2, name="two"))
    assert ended(store) == ("failed", "no item succeeded: 5 failed")


async def test_a_run_in_which_one_item_succeeded_is_done(store):
    async with abreast.open_run("script", store=store) as run:
        await drain(run.map(fails, range(2), width=2))
        await run.step("rescue", odd_fails, 2)
    assert ended(store) == ("done", "")


async def test_a_run_without_items_is_done(store):
    async with abreast.open_run("script", store=store) as run:
        await drain(run.map(fails, [], width=2))
    assert ended(store) == ("done", "")


async def test_what_succeeds_beneath_items_that_all_fail_is_no_success_of_the_run(store):
    async def work(value):
        await abreast.current().run.step("fetch", odd_fails, 2)
        return await fails(value)

    async with abreast.open_run("script", store=store) as run:
        await drain(run.map(work, range(2), width=2))
    assert ended(store) == ("failed", "no item succeeded: 2 failed")


async def test_what_items_open_in_the_run_around_them_is_theirs_too(store):
    async with abreast.open_run("script", store=store) as run:

        async def work(value):
            await run.step(f"fetch-{value}", odd_fails, 2)
            return await fails(value)

        await drain(run.map(work, range(2), width=2))
    assert ended(store) == ("failed", "no item succeeded: 2 failed")


async def test_what_fails_beneath_items_that_deal_with_it_is_no_failure_of_the_run(store):
    async def work(value):
        try:
            return await abreast.current().run.step("fetch", fails, value)
        except LookupError:
            return 0

    async with abreast.open_run("script", store=store) as run:
        await drain(run.map(work, range(2), width=2))
    assert ended(store) == ("done", "")


async def test_items_of_child_scopes_count_for_the_run(store):
    async with abreast.open_run("script", store=store) as run, run.child("part") as part:
        await drain(part.map(fails, range(2), width=2))
    assert ended(store) == ("failed", "no item succeeded: 2 failed")


async def test_started_again_a_script_in_which_all_failed_begins_a_new_run_as_one_that_is_done(
    store,
):
    ran = Counter()

    async def work(value):
        ran[value] += 1
        if ran[value] < 3:
            raise LookupError(value)

    async def driven(**options):
        async with abreast.open_run("script", store=store, **options) as run:
            await drain(run.map(work, [1], width=1))
        return run.id, store.get(run.id).state

    assert await driven() == ("script-1", "failed")
    assert await driven() == ("script-2", "failed")
    assert await driven(resume="failed") == ("script-2", "done")
    assert ran == {1: 3}


async def test_an_error_that_ends_the_run_is_its_reason_though_all_items_failed(store):
    with pytest.raises(LookupError):
        async with abreast.open_run("script", store=store) as run:
            await run.map(fails, [1], width=1).values()
    assert ended(store) == ("failed", "LookupError: no 1")


async def test_a_resumed_run_counts_what_earlier_drivers_recorded(store):
    with pytest.raises(KeyboardInterrupt):
        async with abreast.open_run("script", store=store) as run:
            await run.step("first", odd_fails, 2)
            raise KeyboardInterrupt
    async with abreast.open_run("script", store=store) as run:
        await run.step("first", odd_fails, 2)
        await drain(run.map(fails, range(2), width=2))
    assert run.resumed
    assert store.get("script-1").state == "done"


async def test_a_sample_without_any_draw_has_failed(store):
    async with abreast.open_run("script", store=store) as run:
        model = Caller(Down(), ModelLane("test", ()), retry=None)
        result = await abreast.sample("Hi", model=model, run=run, breadth=2, on_error="collect")
    assert not result.ok
    assert ended(store) == ("failed", "no item succeeded: 2 failed")


async def test_a_sample_of_which_no_draw_passed_its_checks_is_done(store):
    async with abreast.open_run("script", store=store) as run:
        result = await abreast.sample(
            "Hi", model=Says("no"), run=run, checks=[lambda text: text == "yes"]
        )
    assert not result.ok
    assert ended(store) == ("done", "")


async def test_a_workflow_that_completed_though_its_steps_failed_is_done(store, tmp_path):
    flow = tmp_path / "flow.yaml"
    flow.write_text("""
workflow: {id: flow}
steps:
  - {id: may-fail, type: shell, run: exit 3, continue_on_error: true}
""")
    found = await abreast.workflow(flow, store=store)
    assert found.status == "completed"
    assert ended(store, "flow-1") == ("done", "")


class Says(Down):
    """A model that says the same each time."""

    def __init__(self, text):
        self.text = text

    async def complete(self, request, hear=None):
        return Reply(self.text)

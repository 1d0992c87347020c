"""Seeds by path without the run's name; earlier runs keep the rule they started with."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

import abreast
from abreast.core.errors import Halted, ServerFault, StoreNewer
from abreast.core.seeds import derive_seed
from abreast.models.scripted import Scripted
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import ManualClock
from tests.store.contract import forget_checksums


async def seeds_in(run):
    """The seeds of items, of items beneath them, and of items in a scope within the run."""
    found = []

    async def inner(item):
        found.append(abreast.current().seed)

    async def outer(item):
        found.append(abreast.current().seed)
        await abreast.current().run.map(inner, [1, 2], width=1, name="inner").values()

    await run.map(outer, ["a", "b"], width=1, name="outer").values()
    async with run.child("scope") as scope:
        await scope.map(inner, [1], width=1, name="inner").values()
    return found


async def test_two_runs_of_other_names_with_one_seed_have_the_same_seeds():
    found = []
    for name in ("one", "an/other"):
        async with abreast.open_run(name, seed=7) as run:
            found.append(await seeds_in(run))
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) == 7
    assert found[0][0] == derive_seed(7, "outer/0000")


async def test_two_runs_of_other_names_draw_the_same_samples():
    asked = []
    for name in ("one", "other"):
        model = Scripted(lambda request: f"bad {request.seed}")
        async with abreast.open_run(name, seed=7) as run:
            await abreast.sample(
                "Say.", model=model, run=run, checks=[lambda _: False], breadth=2, depth=2
            )
        asked.append(sorted(request.seed for request in model.calls))
    assert asked[0] == asked[1]
    assert len(set(asked[0])) == 4


async def test_two_runs_of_other_names_wait_alike_before_they_try_again():
    times = []
    for name in ("one", "other"):
        clock = ManualClock()
        model = Caller(Scripted([ServerFault("down"), "up", "up"]), ModelLane("test"), clock=clock)
        tried = []

        async def ask(item):
            reply = await model.ask("Say.")  # noqa: B023 - awaited in this very turn
            tried.append(clock.now())  # noqa: B023
            if len(tried) < 2:  # noqa: B023
                raise ServerFault("and down again")
            return reply.text

        async with abreast.open_run(name, seed=7, clock=clock, hooks=[lambda event: None]) as run:
            done = asyncio.ensure_future(run.map(ask, [1], width=1, retry=2).values())
            await clock.run_until(done)
        times.append(tried)
    assert times[0] == times[1]
    assert 0 < times[0][0] < times[0][1]


# --- runs of before ---


def set_rule(path, rule):
    """Write the rule into the manifests of a store.

    None takes it away, as runs of before had none.
    """
    with closing(sqlite3.connect(path)) as db, db:
        said = (
            "json_remove(manifest, '$.seed_rule')"
            if rule is None
            else f"json_set(manifest, '$.seed_rule', {rule})"
        )
        db.execute(f"UPDATE runs SET manifest = {said}")
    forget_checksums(path)


async def halted(path, work):
    with pytest.raises(Halted):
        async with abreast.open_run("r", store=path, seed=7) as run:
            await work(run)
            run.halt("later")
            await run.map(len, ["x"], width=1, name="after").values()


async def test_a_run_records_the_rule_and_one_that_recorded_none_goes_on_by_the_first(tmp_path):
    path = tmp_path / "runs.db"
    await halted(path, seeds_in)
    with closing(SqliteStore(path)) as store:
        assert store.get("r-1").manifest["seed_rule"] == 2
    set_rule(path, None)

    async def seed(item):
        return abreast.current().seed

    async with abreast.open_run("r", store=path, resume="must") as run:
        assert await run.map(seed, [1], width=1, name="more").values() == [
            derive_seed(7, "r/more/0000")
        ]


async def test_a_sample_of_before_is_resumed_with_the_draws_that_it_recorded(tmp_path, monkeypatch):
    """Its first driver made seeds of whole paths, and stops in the second round."""
    path, asked = tmp_path / "runs.db", []
    monkeypatch.setattr("abreast.run.claim.SEED_RULE", 1)

    def says(request):
        asked.append(request.seed)
        return f"bad {request.seed}"

    def check(text):
        if len(asked) == 2 and not again:
            run.halt("later")
        return False

    again = []
    with pytest.raises(Halted):
        async with abreast.open_run("r", store=path, seed=7) as run:
            await abreast.sample("Say.", model=Scripted(says), run=run, checks=[check], depth=4)
    assert asked[0] == derive_seed(derive_seed(7, "r/sample"), "0/0") & (2**31 - 1)
    monkeypatch.undo()
    set_rule(path, None)
    again.append(True)
    async with abreast.open_run("r", store=path, resume="must") as run:
        result = await abreast.sample(
            "Say.", model=Scripted(says), run=run, checks=[check], depth=4
        )
    assert len(asked) == len(set(asked)) == 4
    assert [one.seed for one in result.attempts] == asked


async def test_a_rule_of_a_later_version_is_not_guessed(tmp_path):
    path = tmp_path / "runs.db"
    await halted(path, seeds_in)
    set_rule(path, 3)
    with pytest.raises(StoreNewer, match="r-1 makes its seeds by rule 3"):
        async with abreast.open_run("r", store=path, resume="must"):
            pass

"""Lanes that learn their limits over real sockets: no concurrency or rate is configured."""

import asyncio
import gc
import json
import logging
import weakref
from contextlib import closing

import pytest

import abreast
from abreast.core.errors import LaneParked
from abreast.limits.limit import Need
from abreast.limits.server_hold import ServerHold
from abreast.models.lanes import read_lanes
from abreast.run.calls.learned_limits import LearnedLimits
from abreast.store.sqlite.store import SqliteStore
from abreast.testing.storm import open_storm


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    monkeypatch.setenv("STORM_KEY", "sk-storm-key")
    monkeypatch.setenv("ABREAST_STATE", str(tmp_path / "state"))


def lanes_at(url, **settings):
    table = {"api_key_env": "STORM_KEY", "base_url": f"{url}/v1", **settings}
    return read_lanes({"openai": table, "anthropic": table}, "abreast.toml")


def opened(storm, name="openai/storm", **settings):
    return abreast.open_model(name, lanes=lanes_at(storm.url, **settings))


async def asked(run, model, count, width=64):
    async def ask(number):
        return (await model.ask(f"item {number}", max_tokens=16)).text

    return [outcome async for outcome in run.map(ask, range(count), width=width)]


def decisions(path):
    with closing(SqliteStore(path)) as store:
        return [
            (event.lane, dict(event.data))
            for event in store.events("r-1", kinds={"limit-changed"}, limit=9999)
        ]


async def test_a_lane_without_numbers_goes_beyond_where_it_begins_and_says_so(tmp_path):
    async with open_storm(latency=0.2) as storm, opened(storm) as model:
        async with abreast.open_run("r", store=tmp_path / "runs.db") as run:
            outcomes = await asked(run, model, 80)
        assert all(outcome.ok for outcome in outcomes)
        assert storm.stats().peak_in_flight > 6  # it begins with four
    told = decisions(tmp_path / "runs.db")
    assert {lane for lane, _ in told} == {"openai"}
    grown = [facts for _, facts in told if facts["dimension"] == "concurrency"]
    assert [facts["old"] for facts in grown[1:]] == [facts["new"] for facts in grown[:-1]]
    assert all(facts["new"] > facts["old"] and facts["cause"] == "room" for facts in grown)


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
async def test_the_limit_in_the_headers_is_kept_to_without_a_single_429(shape, tmp_path):
    async with (
        # The calls after the burst wait for their turn. No loop is a burst, five seconds, late.
        open_storm(rpm=1200, burst=100, latency=0.05) as storm,
        opened(storm, f"{shape}/storm") as model,
    ):
        async with abreast.open_run("r", store=tmp_path / "runs.db") as run:
            outcomes = await asked(run, model, 130)
        assert all(outcome.ok for outcome in outcomes)
        assert storm.stats().rejected == 0
    heard = [
        facts for _, facts in decisions(tmp_path / "runs.db") if facts["dimension"] == "requests"
    ]
    assert heard[0] == {"dimension": "requests", "old": None, "new": 1200.0, "cause": "header"}


async def test_a_width_of_the_users_is_reached_and_never_passed():
    async with (
        open_storm(latency=0.1) as storm,
        opened(storm, width=9) as model,
        abreast.open_run("r") as run,
    ):
        await asked(run, model, 60)
        assert storm.stats().peak_in_flight == 9
        assert model.lane.governed is None


async def test_a_width_with_adaptive_is_a_cap_for_the_search():
    async with open_storm(latency=0.1) as storm, abreast.open_run("r") as run:
        async with opened(storm, width=6, adaptive=True) as model:
            await asked(run, model, 60)
        assert storm.stats().peak_in_flight == 6


async def test_what_a_run_declares_for_the_lane_counts_instead():
    async with open_storm(latency=0.05) as storm, opened(storm) as model:
        async with abreast.open_run("r", lanes={"openai": abreast.Slots(2)}) as run:
            await asked(run, model, 20)
        assert storm.stats().peak_in_flight == 2


async def test_a_429_is_no_attempt_and_holds_only_what_was_hit(tmp_path):
    path = tmp_path / "runs.db"
    async with open_storm(concurrency=3, headers="absent", latency=0.1) as storm:
        async with opened(storm) as model, abreast.open_run("r", store=path) as run:
            outcomes = await asked(run, model, 60)
        assert [outcome.usage.requests for outcome in outcomes] == [1] * 60
        assert storm.stats().rejected > 0
    cuts = [facts for _, facts in decisions(path) if facts["cause"] == "429"]
    assert {facts["dimension"] for facts in cuts} == {"concurrency"}
    limits = [facts["new"] for facts in cuts if facts["new"] is not None]
    # A busy client counts calls that the server has ended: how many more, is up to the machine.
    assert 1 <= min(limits) < 60
    assert storm.stats().peak_in_flight == 3
    assert all(
        facts["old"] is None or facts["new"] <= facts["old"]
        for facts in cuts
        if facts["new"] is not None
    )


async def test_the_answers_are_those_of_a_plain_loop():
    async with open_storm(
        rpm=3000, burst=4, headers="absent", latency=0.02, faults={"500": 0.05}
    ) as storm:
        async with opened(storm) as model, abreast.open_run("r", seed=7) as run:
            wide = [outcome.value for outcome in await asked(run, model, 60)]
            assert "<Governor 0/" in repr(
                model.lane
            )  # those that failed are in flight no more, either
        async with opened(storm, width=1) as model, abreast.open_run("r", seed=7) as run:
            assert [outcome.value for outcome in await asked(run, model, 60, width=1)] == wide


async def test_a_daily_quota_parks_its_lane_says_when_it_returns_and_the_others_go_on(tmp_path):
    path = tmp_path / "runs.db"
    async with open_storm(per_day=2) as poor, open_storm() as rich:
        spent, well = opened(poor), opened(rich, "anthropic/storm")

        async def ask(number):
            return (await (spent if number % 2 else well).ask(f"item {number}")).text

        async with spent, well, abreast.open_run("r", store=path) as run:
            done = [outcome async for outcome in run.map(ask, range(4), width=1)]
            assert all(outcome.ok for outcome in done)
            message = (
                r"^openai takes no more requests: .*; "
                r"it takes more after \d{4}-\d\d-\d\d \d\d:\d\d UTC, in 2[34]"
            )
            with pytest.raises(LaneParked, match=message):
                await run.step("late", ask, 5)
            assert await run.step("other", ask, 6)
        assert poor.stats().arrived == 3
    parked = [facts for _, facts in decisions(path) if facts["dimension"] == "quota"]
    assert [(facts["new"], facts["cause"]) for facts in parked] == [(0, "quota")]
    assert parked[0]["held"] > 80_000


def test_a_parked_lane_takes_calls_again_when_its_time_has_come():
    hold = ServerHold()
    hold.park("it is spent", 100.0)
    with pytest.raises(LaneParked, match="spent"):
        hold.refusal(Need(), 99.9)
    assert hold.refusal(Need(), 100.0) is None
    hold.park("it is spent")
    with pytest.raises(LaneParked):
        hold.refusal(Need(), 1e9)


# --- what was learned


async def test_what_was_learned_is_where_the_next_one_begins():
    async with open_storm(rpm=6000, latency=0.1) as storm:
        async with opened(storm) as model, abreast.open_run("r") as run:
            await asked(run, model, 80)
        lane = weakref.ref(model.lane)
        del model, run
        gc.collect()
        assert lane() is None  # what follows is read from the disk
        async with opened(storm) as model:
            learned = model.lane.governed.governor.known()
            assert learned.rates["requests"] == pytest.approx(6000)
            assert model.lane.governed.governor.search.limit > 6
            await asyncio.gather(
                *(model.ask(f"{n}") for n in range(6))
            )  # at once: no single call is sent ahead of the others


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "at": 0, "flying": 4, "rates": {}}',
        '{"version": 1, "at": 0, "flying": 0, "rates": {}}',
        '{"version": 1, "at": 0, "flying": 4, "rates": {"requests": -1}}',
        '{"version": 1, "at": 0, "flying": 4, "rates": {"wishes": 1}}',
    ],
)
def test_a_file_that_nobody_understands_is_as_good_as_none_and_is_noted(text, tmp_path, caplog):
    profile = LearnedLimits("openai", "http://a", "key", tmp_path)
    profile.path.write_text(text)
    with caplog.at_level(logging.WARNING, "abreast"):
        assert profile.read() is None
    assert str(profile.path) in caplog.text


def test_no_key_is_in_the_file_or_its_name_and_accounts_are_told_apart(tmp_path):
    one, other = (LearnedLimits("a/b c", "http://a", key, tmp_path) for key in ("sk-one", "sk-two"))
    assert one.path != other.path
    one.write(abreast_known())
    assert [path.name for path in tmp_path.iterdir()] == [one.path.name]
    assert "sk-" not in one.path.name + one.path.read_text()
    assert json.loads(one.path.read_text())["flying"] == 12
    found = one.read()
    assert found is not None
    assert found.known == abreast_known()
    assert found.spoken() == "600 rpm, 12 at once"


def abreast_known():
    from abreast.limits.governor.governor import KnownLimits

    return KnownLimits(12, {"requests": 600.0})


def test_where_nothing_can_be_kept_it_is_noted(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "abreast"):
        LearnedLimits("openai", None, None, tmp_path / "file" / "lanes").write(abreast_known())
    assert "can't be kept" in caplog.text

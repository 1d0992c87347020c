"""Calls over real HTTP through run, store, lane and adapter, to a storm that logs all of them."""

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import traceback
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from aiohttp import web

import abreast
from abreast.core.errors import BudgetSpent, KeysMissing, LaneParked, NoSuchRun
from abreast.models.lanes import check_keys, read_lanes, split_name
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import open_storm
from abreast.testing.storm import FAULTS, start_process
from tests.executors.traces import run_and_leave_nothing

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-planted-5e1f0b7d-acceptance"
SHAPES = ("openai", "anthropic", "gemini")
AT_ONCE = abreast.Retry(4, base=0.0, cap=0.0)
every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("STORM_KEY", KEY)


def lanes_at(url, **settings):
    """Lanes as `abreast.toml` would declare them, one for each shape."""
    paths = {"openai": "/v1", "anthropic": "/v1", "gemini": "/v1beta"}
    table = {
        "api_key_env": "STORM_KEY",
        "width": 8,
        "price": {"input": 1.0, "output": 2.0},
        **settings,
    }
    return read_lanes(
        {name: {**table, "base_url": url + path} for name, path in paths.items()}, "abreast.toml"
    )


def opened(url, shape="openai", retry=AT_ONCE, **settings):
    return abreast.open_model(f"{shape}/storm", lanes=lanes_at(url, **settings), retry=retry)


async def outcomes_of(run, model, prompts, *, width=8, **asking):
    async def ask(prompt):
        return (await model.ask(prompt, **asking)).text

    return [outcome async for outcome in run.map(ask, prompts, width=width)]


def events_of(path, kind, run_id="r-1"):
    with closing(SqliteStore(path)) as store:
        return store.events(run_id, kinds={kind}, limit=100_000)


def state_of(path, run_id="r-1"):
    with closing(SqliteStore(path)) as store:
        return store.get(run_id).state


# --- cancelled calls


@every_shape
def test_a_hundred_calls_cancelled_in_flight_are_a_hundred_disconnects_and_leave_nothing(
    shape, tmp_path
):
    path = tmp_path / "runs.db"

    async def main():
        async with open_storm(latency=600) as storm:
            before = asyncio.all_tasks()
            model = opened(storm.url, shape, width=100)

            async def work():
                async with abreast.open_run("r", store=path) as run:
                    await outcomes_of(
                        run, model, [f"item {n}" for n in range(100)], width=100, max_tokens=40
                    )

            task = asyncio.create_task(work())
            await storm.until(lambda stats: stats.in_flight == 100)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await storm.until(lambda stats: stats.disconnects == 100)  # before the model is closed
            assert storm.stats().in_flight == 0
            await model.close()
            assert not {
                task for task in asyncio.all_tasks() - before if "RequestHandler" not in repr(task)
            }

    run_and_leave_nothing(main)
    settled = events_of(path, "call-settled")
    assert [event.data["state"] for event in settled] == ["cancelled"] * 100
    assert all(event.data["estimate"] and event.data["usd"] > 0 for event in settled)
    assert {event.data["output_tokens"] for event in settled} == {40}
    assert state_of(path) == "interrupted"


def test_after_an_early_success_no_request_is_in_flight():
    async def main():
        async with (
            open_storm() as storm,
            opened(storm.url, width=100) as model,
            abreast.open_run("r") as run,
        ):

            async def ask(prompt):
                if prompt == "quick":
                    await storm.until(lambda stats: stats.in_flight == 99)
                return (await model.ask(prompt)).text

            prompts = ["quick", *(f"{n} fault-stall" for n in range(99))]
            done = [outcome async for outcome in run.map(ask, prompts, width=100, until=1)]
            assert [outcome.ok for outcome in done] == [True]
            await storm.until(lambda stats: stats.disconnects == 99)
            assert storm.stats().in_flight == 0

    run_and_leave_nothing(main)


async def test_an_item_that_takes_too_long_hangs_up_and_its_call_is_recorded(tmp_path):
    path = tmp_path / "runs.db"
    async with open_storm() as storm, opened(storm.url) as model:
        async with abreast.open_run("r", store=path) as run:
            (outcome,) = [
                outcome
                async for outcome in run.map(model.ask, ["fault-stall"], width=1, timeout=0.2)
            ]
        assert type(outcome.error).__name__ == "TimedOut"
        await storm.until(lambda stats: stats.disconnects == 1)
    (settled,) = events_of(path, "call-settled")
    assert (settled.data["state"], settled.data["estimate"]) == ("cancelled", True)
    assert outcome.usage.estimate


# --- service time


@pytest.mark.parametrize(("width", "calls", "latency"), [(1, 4, 8.0), (4, 12, 8.0), (64, 80, 30.0)])
async def test_the_service_time_of_a_call_is_what_the_server_measured(
    width, calls, latency, tmp_path
):
    path = tmp_path / "runs.db"
    # Each call is rejected four times, so each waits for its lane as well as for its turn. A second
    # takes 50 ms there.
    with start_process(latency=latency, noise=latency / 2, minute=3.0) as storm:
        async with (
            opened(storm.url, width=width) as model,
            abreast.open_run("r", store=path) as run,
        ):
            asked = [f"{n} fault-429x4" for n in range(calls)]
            assert all(outcome.ok for outcome in await outcomes_of(run, model, asked, width=width))
        log = storm.log()
    measured = {
        f"chatcmpl-storm{entry.id}": entry.service for entry in log if entry.outcome == "ok"
    }
    ratios = []
    for event in events_of(path, "call-settled"):
        (service,) = event.data["service"]
        ratios.append(service / measured.pop(json.loads(event.body)["id"]))
    assert len(ratios) == calls
    assert len(log) == 5 * calls
    assert not measured
    assert min(ratios) >= 0.95
    # The lowest quarter only: a busy machine may receive some answers late.
    assert statistics.quantiles(ratios, n=4)[0] <= 1.05


# --- faults

# Seconds after which a call that stalls is given up. No other call may take as long, on a machine
# that has too much to do.
STALLED = 6
RETRIED = {"500", "reset", "reset-body", "stall", "stall-body"}
THROTTLED = {"429", "429-bare", "429-date", "429-concurrency"}
HELD = THROTTLED | {"502", "503", "529"}
PARKED = {"quota"}
FAILED = {
    "truncated": "ReplyBroken",
    "malformed": "ReplyBroken",
    "empty": "ReplyBroken",
    "huge": "ReplyBroken",
    "html": "ReplyBroken",
    "refusal": "Refused",
    "401": "KeyRefused",
    "403": "KeyRefused",
    "404": "NoSuchModel",
    "context": "TooLong",
}


LAST = {
    "500": "ServerFault",
    "reset": "ConnectionLost",
    "reset-body": "ConnectionLost",
    "stall": "ReplyTimeout",
    "stall-body": "ReplyTimeout",
}
"""The final error of a fault that is retried in vain."""
ROWS = {
    ("500",): "500, 504: the provider fails",
    ("502", "503", "529"): "502, 503, 529: the provider is down or overloaded",
    ("reset", "reset-body"): "the connection is reset, before or in the middle of a reply",
    ("stall", "stall-body"): (
        "no first byte within `first_byte`, no whole reply within `timeout`, "
        "or no byte for 600 seconds"
    ),
    ("429", "429-date", "429-bare"): "429, with Retry-After in seconds or as a date, or without",
    ("429-concurrency",): "429: too many at once",
    ("quota",): "429: the quota of a day or a month is used up, or a wait of more than an hour",
    ("truncated", "malformed"): "half of a JSON document, or none at all",
    ("empty",): "a reply with no choices, or an empty one",
    ("huge",): "a reply of more than 8 MB",
    ("html",): "a page of HTML where JSON should be",
    ("refusal",): "the model refuses, or a content filter does",
    ("401", "403"): "401, 403: the key is wrong, or may not do this",
    ("404",): "404: no such model",
    ("context",): "more tokens than the context holds",
}


def test_each_fault_has_its_outcome_and_the_page_about_models_says_which():
    assert RETRIED | HELD | PARKED | FAILED.keys() == FAULTS.keys()
    assert LAST.keys() == RETRIED
    page = (ROOT / "docs/models.md").read_text("utf-8")
    told = set()
    for faults, row in ROWS.items():
        told.update(faults)
        for fault in faults:
            outcome = (
                f"retried | `{LAST[fault]}`"
                if fault in RETRIED
                else "held | "
                if fault in HELD
                else ""
            )
            outcome = outcome or (
                "parked | `LaneParked`" if fault in PARKED else f"failed | `{FAILED[fault]}`"
            )
            assert f"| {row} | {outcome.rstrip()} |\n" in page, fault
    assert told == FAULTS.keys()


@every_shape
async def test_faults_that_pass_are_tried_again_and_each_attempt_is_counted(shape, tmp_path):
    path = tmp_path / "runs.db"
    prompts = [f"fault-{fault}x2" for fault in sorted(RETRIED)]
    async with open_storm() as storm, opened(storm.url, shape, timeout=STALLED) as model:
        async with abreast.open_run("r", store=path) as run:
            outcomes = await outcomes_of(run, model, prompts)
        assert [outcome.ok for outcome in outcomes] == [True] * len(prompts)
        assert {outcome.usage.requests for outcome in outcomes} == {3}
        assert storm.stats().arrived == 3 * len(prompts)
    settled = events_of(path, "call-settled")
    assert {len(event.data["service"]) for event in settled} == {3}
    assert {event.data["state"] for event in settled} == {"done"}


@every_shape
async def test_faults_that_do_not_pass_end_with_the_last_error_and_what_came_is_kept(
    shape, tmp_path
):
    path = tmp_path / "runs.db"
    async with (
        open_storm() as storm,
        opened(storm.url, shape, timeout=STALLED, retry=abreast.Retry(1, base=0)) as model,
    ):
        async with abreast.open_run("r", store=path) as run:
            outcomes = await outcomes_of(run, model, [f"fault-{fault}" for fault in LAST])
        assert [type(outcome.error).__name__ for outcome in outcomes] == [*LAST.values()]
        assert storm.stats().arrived == 2 * len(LAST)
    assert kept(path, LAST) == {fault: fault not in ("reset", "stall") for fault in LAST}


@every_shape
async def test_faults_of_a_reply_or_a_request_are_typed_and_what_came_is_kept_in_the_store(
    shape, tmp_path
):
    path = tmp_path / "runs.db"
    async with open_storm() as storm, opened(storm.url, shape) as model:
        async with abreast.open_run("r", store=path) as run:
            outcomes = await outcomes_of(run, model, [f"fault-{fault}" for fault in FAILED])
        assert [type(outcome.error).__name__ for outcome in outcomes] == [*FAILED.values()]
        assert storm.stats().arrived == len(FAILED)
    assert kept(path, FAILED) == dict.fromkeys(FAILED, True)
    assert state_of(path) == "failed"


def kept(path, faults):
    """The body that came instead of a reply is in the store, with the call and the item."""
    with closing(SqliteStore(path)) as store:
        calls = store.events("r-1", kinds={"call-settled"}, limit=1000)
        items = {
            outcome.path: json.loads(outcome.body) for outcome in store.outcomes("r-1", limit=1000)
        }
    found = {}
    by_item = {event.path.partition("/call/")[0]: json.loads(event.body) for event in calls}
    for fault, path_of_item in zip(faults, sorted(items), strict=True):
        raw = items[path_of_item].get("details", {}).get("raw", "")
        assert raw == by_item[path_of_item].get("details", {}).get("raw", "")
        assert len(raw) <= 65_536
        found[fault] = bool(raw)
    return found


async def test_each_kind_of_429_holds_the_lane_is_no_attempt_and_costs_nothing(tmp_path):
    async def one(shape, storm):
        path = tmp_path / f"{shape}.db"
        async with (
            opened(storm.url, shape, retry=0, width=1) as model,
            abreast.open_run("r", store=path) as run,
        ):
            outcomes = await outcomes_of(
                run, model, [f"fault-{fault}x1" for fault in sorted(THROTTLED)], width=1
            )
        assert [outcome.usage.requests for outcome in outcomes if outcome.ok] == [1] * len(
            THROTTLED
        )
        assert [len(event.data["service"]) for event in events_of(path, "call-settled")] == [
            1
        ] * len(THROTTLED)
        held = events_of(path, "limit-changed")
        assert [event.data["cause"] for event in held] == ["429"] * len(THROTTLED)
        assert all(event.data["held"] >= 0 for event in held)
        return [event.data["limit"] for event in held]

    async with open_storm(minute=1.2) as storm:  # a second takes 20 ms there, except that of a date
        limits = await asyncio.gather(*(one(shape, storm) for shape in SHAPES))
        assert storm.stats().arrived == 2 * len(THROTTLED) * len(SHAPES)
    assert limits == [["requests", "requests", "concurrency", "requests"]] * len(SHAPES)


@every_shape
async def test_a_spent_quota_parks_the_lane_and_the_run_goes_on_another_day(shape, tmp_path):
    path = tmp_path / "runs.db"
    async with open_storm(fault_at={3: "quota"}) as storm:

        async def once(resume):
            async with (
                opened(storm.url, shape, width=1) as model,
                abreast.open_run("r", store=path, resume=resume) as run,
            ):
                return await outcomes_of(run, model, [f"item {n}" for n in range(6)], width=1)

        with pytest.raises(LaneParked, match=rf"^{shape} takes no more requests: .*quota"):
            await once("never")
        assert storm.stats().arrived == 3
        assert state_of(path) == "spent"
        gc.collect()  # a lane lives as long as a model on it
        outcomes = await once("must")
        assert [outcome.ok for outcome in outcomes] == [True] * 6
        assert storm.stats().arrived == 7  # the two recorded ones are not sent again
    assert state_of(path) == "done"


async def test_a_wait_of_hours_parks_the_lane(tmp_path):
    path = tmp_path / "runs.db"
    async with (
        open_storm(rpm=1, burst=2, retry_after=7200.0) as storm,
        opened(storm.url, width=1) as model,
    ):
        with pytest.raises(LaneParked, match="it asks to wait for 2"):
            async with abreast.open_run("r", store=path) as run:
                await outcomes_of(run, model, "abcd", width=1)
        assert storm.stats().arrived == 3
    assert state_of(path) == "spent"


async def test_a_parked_lane_does_not_stop_the_others(tmp_path):
    async with open_storm() as storm:
        lanes = lanes_at(storm.url)
        spent, well = (
            abreast.open_model(name, lanes=lanes) for name in ("openai/fault-quota", "gemini/storm")
        )

        async def ask(prompt):
            try:
                return (await spent.ask(prompt)).text
            except LaneParked:
                return (await well.ask(prompt)).text

        async with spent, well, abreast.open_run("r", store=tmp_path / "runs.db") as run:
            assert len(await run.map(ask, "abc", width=1).values()) == 3
        assert [entry.lane for entry in storm.log] == ["openai", "gemini", "gemini", "gemini"]


@every_shape
async def test_a_stream_that_broke_is_tried_again_only_if_nobody_heard_of_it(shape, tmp_path):
    path = tmp_path / "runs.db"
    unheard = ["500", "502", "503", "529", "reset", "stall"]
    heard = {
        "reset-body": "ConnectionLost",
        "stall-body": "ReplyTimeout",
        "truncated": "ConnectionLost",
        "malformed": "ReplyBroken",
    }
    told = {}
    async with (
        open_storm(output_min=32) as storm,
        opened(storm.url, shape, timeout=STALLED) as model,
    ):

        async def ask(prompt):
            told[prompt] = []
            return (await model.ask(prompt, hear=told[prompt].append)).text

        async with abreast.open_run("r", store=path) as run:
            prompts = [f"fault-{fault}x1" for fault in (*unheard, *heard)]
            outcomes = [outcome async for outcome in run.map(ask, prompts, width=10)]
        assert storm.stats().arrived == 2 * len(unheard) + len(heard)
    for prompt, outcome in zip(prompts, outcomes, strict=True):
        if outcome.ok:
            assert "".join(told[prompt]) == outcome.value
        else:
            assert outcome.error.raw
    assert [outcome.ok for outcome in outcomes] == [True] * len(unheard) + [False] * len(heard)
    assert [type(outcome.error).__name__ for outcome in outcomes[len(unheard) :]] == [
        *heard.values()
    ]


async def test_what_a_refusal_used_is_charged(tmp_path):
    budget = abreast.Budget(tokens=10_000)
    async with open_storm(output_min=20) as storm, opened(storm.url) as model:
        async with abreast.open_run("r", store=tmp_path / "runs.db", budget=budget) as run:
            (outcome,) = await outcomes_of(run, model, ["fault-refusal"], max_tokens=100)
        (entry,) = storm.log
    assert type(outcome.error).__name__ == "Refused"
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (
        entry.input_tokens,
        entry.output_tokens,
    )
    assert budget.spent["tokens"] == entry.input_tokens + entry.output_tokens


# --- keys


def test_all_keys_that_are_missing_are_named_at_once(tmp_path):
    table = {
        "one": {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "NO_SUCH_KEY"},
        "two": {"base_url": "http://127.0.0.1:1/v1", "api_key_file": str(tmp_path / "none")},
        "three": {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "STORM_KEY"},
    }
    lanes = read_lanes(table, "abreast.toml")
    wanted = [split_name(f"{name}/m", lanes)[0] for name in table]
    with pytest.raises(KeysMissing) as caught:
        check_keys(wanted)
    assert str(caught.value) == (
        "keys are missing: one wants the environment variable NO_SUCH_KEY; "
        f"two wants the file {tmp_path / 'none'}"
    )
    with pytest.raises(KeysMissing, match="NO_SUCH_KEY"):
        abreast.open_model("one/m", lanes=lanes)


@asynccontextmanager
async def echo():
    """A server that sends back the key, in a different way for each prompt."""

    def reply(given):
        words = {"role": "assistant", "content": f"your key is {given}, {given}"}
        call = {
            "id": given,
            "type": "function",
            "function": {"name": given, "arguments": json.dumps({"key": given})},
        }
        choice = {"index": 0, "message": {**words, "tool_calls": [call]}, "finish_reason": "stop"}
        return {
            "id": given,
            "model": given,
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }

    def stream(given):
        half = len(given) // 2
        texts = [given[:half], given[half:], "!"]
        chunks = [
            {"id": given, "model": given, "choices": [{"delta": {"content": text}}]}
            for text in texts
        ]
        chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

    async def answer(request):
        body = await request.json()
        way = body["messages"][-1]["content"]
        given = request.headers["authorization"].removeprefix("Bearer ")
        assert given == KEY
        if body.get("stream"):
            return web.Response(text=stream(given), content_type="text/event-stream")
        if way.isdecimal():
            error = {
                "message": f"{given} is no good",
                "type": given,
                "code": given,
                "param": {given: given},
            }
            return web.json_response(
                {"error": error}, status=int(way), headers={"x-key": given, "location": given}
            )
        if way == "kind":
            return web.Response(body=b"{}", headers={"content-type": f"text/{given}"})
        if way == "reason":
            return web.json_response({}, status=400, reason=given)
        if way == "malformed":
            return web.Response(text=f"{{{given}", content_type="application/json")
        headers = {"retry-after": given, "set-cookie": f"key={given}", "x-request-id": given}
        return web.json_response(reply(given), headers=headers)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


WAYS = (
    "300",
    "400",
    "401",
    "403",
    "404",
    "413",
    "429",
    "500",
    "529",
    "kind",
    "reason",
    "malformed",
    "reply",
)


@pytest.mark.parametrize("source", ["api_key_env", "api_key_file"])
@pytest.mark.filterwarnings("ignore::abreast.run.map.journal.FunctionChanged")
async def test_a_key_is_in_no_file_event_log_or_error_whatever_the_server_sends_back(
    source, tmp_path, tmp_path_factory, monkeypatch, caplog
):
    secret = tmp_path_factory.mktemp("secret") / "key"
    secret.write_text(f"{KEY}\n")
    if source == "api_key_file":
        monkeypatch.delenv("STORM_KEY")
    place = {"api_key_env": "STORM_KEY", "api_key_file": str(secret)}[source]
    caplog.set_level("DEBUG")
    seen, said, heard = [], [], []
    async with echo() as url:
        lane = {"base_url": f"{url}/v1", source: place, "outage": 0}
        lanes = read_lanes({"mine": lane}, "abreast.toml")
        ways = [way for way in WAYS if way != "429"]  # it would be throttled forever
        store = tmp_path / "runs.db"
        model = abreast.open_model("mine/m", lanes=lanes, store=store, cache=True, retry=AT_ONCE)
        async with (
            model,
            abreast.open_run(
                "r", store=store, hooks=[lambda event: seen.append(repr(event))]
            ) as run,
        ):
            outcomes = await outcomes_of(run, model, ways)

            async def listened(prompt):
                return (await model.ask(prompt, hear=heard.append)).text

            outcomes += [outcome async for outcome in run.map(listened, ["streamed"], width=1)]
            said += [repr(model), repr(model.model), repr(run)]
            # The store while the run is open, with its write-ahead log.
            grep(tmp_path)
    for outcome in outcomes:
        said.append(repr(outcome))
        if not outcome.ok:
            error = outcome.error
            said += [repr(vars(error)), *traceback.format_exception(error)]
    assert [outcome.ok for outcome in outcomes] == [False] * (len(ways) - 1) + [True, True]
    assert KEY not in "".join(seen)
    assert KEY not in caplog.text
    assert KEY not in "".join(said)
    grep(tmp_path)


def descriptors_of(path):
    return [
        entry
        for entry in Path("/proc/self/fd").iterdir()
        if entry.exists() and str(entry.readlink()).startswith(str(path))
    ]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are read from /proc")
async def test_a_model_closes_the_store_that_it_has_opened_and_no_other(tmp_path):
    async with echo() as url:
        lanes = read_lanes({"mine": {"base_url": f"{url}/v1", "api_key_env": "STORM_KEY"}}, "here")
        path = tmp_path / "by path.db"
        model = abreast.open_model("mine/m", lanes=lanes, store=path, cache=True)
        assert descriptors_of(path)
        await model.close()
        await model.close()
        assert descriptors_of(path) == []

        with closing(SqliteStore(tmp_path / "given.db")) as store:
            async with abreast.open_model("mine/m", lanes=lanes, store=store, cache=True):
                pass
            assert list(store.runs()) == []  # it can still be read

        with pytest.raises(NoSuchRun):
            abreast.open_model("replay/nothing", store=path)
        assert descriptors_of(path) == []


def grep(folder):
    """No file contains the key or half of it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "runs.db" for path in files)
    assert [path for path in files if KEY[: len(KEY) // 2].encode() in path.read_bytes()] == []


# --- after a crash

SCRIPT = """
import asyncio, sys
import abreast
from abreast.models.lanes import read_lanes

lane = {"base_url": sys.argv[1] + "/v1", "api_key_env": "STORM_KEY"}
lanes = read_lanes({"openai": lane}, "here")


async def main():
    async with abreast.open_model("openai/storm", lanes=lanes) as model:

        async def work(item):
            prompts = ("first", "first", "fault-stallx1 second")
            replies = [await model.ask(f"{words} {item}") for words in prompts]
            return " ".join(reply.text for reply in replies)

        async with abreast.open_run("r", store="runs.db") as run:
            print(*await run.map(work, range(4), width=4).values(), sep="\\n")


asyncio.run(main())
"""


@pytest.mark.usefixtures("unmeasured")
def test_a_call_that_was_answered_before_a_kill_is_not_sent_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with start_process() as storm:
        command = [sys.executable, str(script), storm.url]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
            while (stats := storm.stats()).ok + stats.in_flight < 12:
                assert process.poll() is None
            process.kill()
        assert storm.stats().ok == 8
        again = subprocess.run(
            command, cwd=tmp_path, stdout=subprocess.PIPE, check=True, timeout=60
        )
        assert len(again.stdout.splitlines()) == 4
        assert storm.stats().arrived == 16  # only the four that had no answer yet were sent again
        said = [
            json.loads(event.body)["text"]
            for event in events_of(tmp_path / "runs.db", "call-settled")
        ]
    assert sorted(again.stdout.decode().split()) == sorted(" ".join(said).split())
    assert state_of(tmp_path / "runs.db") == "done"


# --- limits and budgets


async def test_two_hundred_calls_race_for_fifty_requests_and_the_server_sees_fifty(tmp_path):
    path = tmp_path / "runs.db"
    async with open_storm(latency=0.01) as storm, opened(storm.url, width=64) as model:
        with pytest.raises(BudgetSpent, match="50 of 50 requests"):
            async with abreast.open_run("r", store=path, budget="50req") as run:
                await outcomes_of(run, model, [str(n) for n in range(200)], width=200)
        assert storm.stats().arrived == 50
    assert state_of(path) == "spent"


async def test_two_hundred_calls_of_one_item_race_for_fifty_requests_and_the_server_sees_fifty(
    tmp_path,
):
    async with open_storm(latency=0.01) as storm, opened(storm.url, width=64) as model:

        async def many(_):
            asked = await asyncio.gather(
                *(model.ask(str(n)) for n in range(200)), return_exceptions=True
            )
            return [type(reply).__name__ for reply in asked]

        async with abreast.open_run("r", store=tmp_path / "runs.db", budget="50req") as run:
            (replies,) = await run.map(many, ["all"], width=1).values()
        assert storm.stats().arrived == 50
    assert sorted(replies) == ["BudgetSpent"] * 150 + ["Reply"] * 50


async def test_a_token_cap_is_not_passed_by_the_servers_count(tmp_path):
    budget = abreast.Budget(tokens=4000)
    async with open_storm(latency=0.01) as storm, opened(storm.url, width=64) as model:
        with pytest.raises(BudgetSpent):
            async with abreast.open_run("r", store=tmp_path / "runs.db", budget=budget) as run:
                await outcomes_of(
                    run, model, [f"question {n}" for n in range(200)], width=64, max_tokens=32
                )
        used = sum(entry.input_tokens + entry.output_tokens for entry in storm.log)
    assert 3900 <= used <= 4000
    assert budget.spent["tokens"] == used


async def test_a_lane_of_four_is_four_wide_by_the_servers_count(tmp_path):
    async with open_storm(latency=0.01) as storm, opened(storm.url, width=4) as model:
        async with abreast.open_run("r", store=tmp_path / "runs.db") as run:
            assert (
                len(await outcomes_of(run, model, [str(n) for n in range(200)], width=200)) == 200
            )
        assert storm.stats().peak_in_flight == 4
        await asyncio.gather(*(model.ask(str(n)) for n in range(200)))  # and outside of any run
        assert storm.stats().peak_in_flight == 4


@pytest.mark.parametrize("lane", ["openai", None])
async def test_calls_side_by_side_in_one_item_are_within_the_lane_too(lane):
    slots = abreast.Slots(4)
    async with open_storm(latency=0.01) as storm, opened(storm.url, width=4) as model:

        async def many(item):
            return [
                reply.text
                for reply in await asyncio.gather(*(model.ask(f"{item} {n}") for n in range(20)))
            ]

        async with abreast.open_run("r", lanes={"openai": slots}) as run:
            assert len(await run.map(many, range(10), width=10, lane=lane).values()) == 10
        assert (storm.stats().arrived, storm.stats().peak_in_flight) == (200, 4)
    assert slots.taken == 0


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_breaks_or_is_cut_off_nothing_stays_taken_and_no_request_is_uncounted(
    seed, tmp_path
):
    slots, budget = abreast.Slots(1 + seed % 3), abreast.Budget(requests=10_000, tokens=10_000_000)
    faults = {"429": 0.2, "500": 0.1, "reset": 0.05, "reset-body": 0.05, "refusal": 0.05}
    async with open_storm(seed=seed, minute=0.6, latency=seed % 2, faults=faults) as storm:
        async with opened(storm.url, retry=abreast.Retry(3, base=0.001, cap=0.002)) as model:

            async def work(item):
                if item % 3:
                    return (await model.ask(f"{item}")).text
                return [
                    reply.text
                    for reply in await asyncio.gather(*(model.ask(f"{item} {n}") for n in range(3)))
                ]

            again = abreast.Retry(2, base=0.0, cap=0.0)
            async with abreast.open_run(
                "r", store=tmp_path / "runs.db", lanes={"openai": slots}, budget=budget
            ) as run:
                mapped = run.map(work, range(24), width=8, lane="openai", timeout=0.1, retry=again)
                assert len([outcome async for outcome in mapped]) == 24
        assert storm.stats().admitted <= budget.spent["requests"]
    assert slots.taken == 0
    assert all(abs(amount) < 1e-9 for amount in budget.reserved.values())


async def test_a_lane_is_shared_by_the_models_of_its_provider(tmp_path):
    async with open_storm(latency=0.01) as storm:
        lanes = lanes_at(storm.url, width=3)
        one, two = (abreast.open_model(f"openai/{name}", lanes=lanes) for name in ("one", "two"))

        async def ask(number):
            return (await (one, two)[number % 2].ask(str(number))).text

        async with one, two, abreast.open_run("r", store=tmp_path / "runs.db") as run:
            await run.map(ask, range(40), width=40).values()
        assert storm.stats().peak_in_flight == 3


@pytest.mark.parametrize(
    ("rate", "settings"),
    [
        (abreast.Rate(600, per=6.0, burst=1), {"rpm": 600, "burst": 40}),
        (
            abreast.Rate(20_000, per=6.0, of="tokens", burst=300),
            {"tpm": 20_000, "token_burst": 2000},
        ),
    ],
    ids=["requests", "tokens"],
)
async def test_a_lane_within_the_servers_limits_is_never_turned_away(rate, settings, tmp_path):
    # The server's bucket is larger than the lane's: what was admitted evenly may arrive together on
    # a slow machine.
    async with open_storm(minute=6.0, **settings) as storm, opened(storm.url, width=64) as model:
        lanes = {"openai": [abreast.Slots(64), rate]}
        async with abreast.open_run("r", store=tmp_path / "runs.db", lanes=lanes) as run:
            outcomes = await outcomes_of(
                run, model, [f"{n:04}" * 10 for n in range(120)], width=64, max_tokens=20
            )
        assert all(outcome.ok for outcome in outcomes)
        assert (storm.stats().arrived, storm.stats().rejected) == (120, 0)
        used = sum(entry.input_tokens + entry.output_tokens for entry in storm.log)
        assert used > 1000 or "rpm" in settings  # or its limit would not have been reached

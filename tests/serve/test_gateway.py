"""Calls as items of a run: lanes, budgets, fairness between clients, waits, what is recorded."""

import asyncio
import threading
from collections import Counter
from contextlib import closing

import pytest
from aiohttp import web

from abreast.core.clock import SYSTEM_CLOCK
from abreast.models.price import FlatPrice
from abreast.serve.dialects.chat import Chat
from abreast.store.port import each_outcome
from abreast.store.sqlite.store import SqliteStore
from abreast.testing import Gate, MemoryStore, open_storm
from abreast.views.served import ServedSums
from abreast.web.pages import PageSource
from tests.serve.gateways import (
    chat,
    chat_reply,
    lanes,
    message,
    open_gateway,
    open_upstream,
    reply_hi,
)
from tests.turns import until


@pytest.fixture
async def upstream():
    async with open_upstream(reply_hi) as opened:
        yield opened


def holding(gate):
    """Replies once the gate is opened for the prompt."""

    async def reply(request, body):
        await gate.pass_(body["messages"][-1]["content"])
        return web.json_response(chat_reply())

    return reply


async def test_clients_take_turns_at_a_lane_so_that_many_calls_of_one_starve_no_other(upstream):
    gate = Gate()
    upstream.answer = holding(gate)
    async with open_gateway(lanes(upstream.url, width=1), ahead=1) as client:
        greedy = {"x_abreast_client": "greedy"}
        first = asyncio.create_task(client.chat("first", headers=greedy))
        await gate.wait_for("first")
        many = [asyncio.create_task(client.chat(f"g{n}", headers=greedy)) for n in range(20)]
        await until(lambda: client.gateway.calls == 21)
        one = asyncio.create_task(client.chat("mine", headers={"x_abreast_client": "small"}))
        await until(lambda: client.gateway.calls == 22)
        gate.open_all()
        await asyncio.wait([first, *many, one])
    # Before it: the call under way, the one at the lane already, and the other client's turn.
    assert gate.arrived.index("mine") <= 3


async def test_a_lane_that_is_full_does_not_hold_up_another(upstream):
    gate = Gate()
    upstream.answer = holding(gate)
    async with open_gateway(lanes(upstream.url, width=1), ahead=1) as client:
        blocked = [asyncio.create_task(client.chat(f"b{n}")) for n in range(5)]
        await gate.wait_for("b0")
        gate.open("free")
        assert (await client.post("/v1/messages", message("free"))).status == 200
        gate.open_all()
        await asyncio.wait(blocked)


async def test_the_lane_bounds_what_is_at_the_provider_and_nothing_fails(upstream):
    async with open_storm(concurrency=3, latency=0.01) as storm:
        async with open_gateway(lanes(storm.url, width=3)) as client:
            answers = await asyncio.gather(*(client.chat(f"q{n}") for n in range(30)))
        assert {answer.status for answer in answers} == {200}
        assert (storm.stats().peak_in_flight, storm.stats().rejected) == (3, 0)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_spent_budget_is_a_402_that_is_not_tried_again(upstream, path):
    body = message(max_tokens=10) if path == "/v1/messages" else chat(max_tokens=10)
    async with open_gateway(lanes(upstream.url), budget="1req") as client:
        first = await client.post(path, body)
        second = await client.post(path, {**body, "stream": True})
        third = await client.post(path, body)
    assert [first.status, second.status, third.status] == [200, 402, 402]
    assert len(upstream.requests) == 1
    kind = "billing_error" if path == "/v1/messages" else "insufficient_quota"
    for answer in (second, third):
        assert answer.json["error"]["type"] == kind
        assert "budget" in answer.json["error"]["message"]
        assert answer.headers["x-should-retry"] == "false"


async def test_a_budget_in_money_is_never_passed_by_fifty_clients(upstream):
    async def reply(request, body):
        return web.json_response(chat_reply(tokens=(10, body["max_completion_tokens"])))

    upstream.answer = reply
    price = FlatPrice(10.0, 10.0)
    async with open_gateway(lanes(upstream.url, price=price, width=16), budget="1usd") as client:
        answers = await asyncio.gather(
            *(
                client.chat(f"q{n}-{m}", headers={"x_abreast_client": f"c{n}"})
                for n in range(50)
                for m in range(2)
            )
        )
        budget = client.run.budget
    assert set(Counter(answer.status for answer in answers)) == {200, 402}
    assert 0.9 < budget.spent["usd"] <= 1.0
    # Without a bound of its own, a request gets one: else no budget could be held.
    assert {body["max_completion_tokens"] for body in upstream.bodies} == {4096}


async def test_a_wait_that_is_too_long_is_a_429_that_says_when(upstream):
    gate, store = Gate(), MemoryStore()
    upstream.answer = holding(gate)
    async with open_gateway(lanes(upstream.url, width=1), store=store) as client:
        first = asyncio.create_task(client.chat("first"))
        await gate.wait_for("first")
        answer = await client.chat("second", headers={"x_abreast_timeout": "0.01"})
        assert (answer.status, answer.json["error"]["code"]) == (429, "rate_limit_exceeded")
        assert answer.headers["retry-after"] == "1"
        stream = await client.chat("third", headers={"x_abreast_timeout": "0"}, stream=True)
        assert stream.status == 429
        gate.open_all()
        assert (await first).status == 200
    assert gate.arrived == ["first"]


async def test_a_stream_that_waits_is_kept_alive_and_its_record_has_none_of_that(upstream):
    gate, store = Gate(), MemoryStore()
    upstream.answer = holding(gate)
    alive = {"keep_alive": 0.001}
    async with open_gateway(lanes(upstream.url, width=1), store=store, server=alive) as client:
        async with client.open("/v1/messages", message(stream=True)) as response:
            assert await response.content.readline() == b"event: ping\n"
            assert await response.content.readline() == b'data: {"type":"ping"}\n'
            gate.open_all()
            assert b"chatcmpl-1" in await response.content.read()
    [outcome] = each_outcome(store, "serve-1")
    assert "ping" not in (outcome.body or "")


async def test_an_error_after_a_sign_of_life_is_an_event_of_the_stream(upstream):
    gate = Gate()

    async def refuse(request, body):
        await gate.pass_("asked")
        return web.json_response({"error": {"message": "no"}}, status=400)

    upstream.answer = refuse
    async with open_gateway(lanes(upstream.url), server={"keep_alive": 0.001}) as client:
        async with client.open("/v1/chat/completions", chat(stream=True)) as response:
            assert await response.content.readline() == b": waiting\n"
            gate.open_all()
            rest = await response.content.read()
    assert (response.status, rest.count(b"invalid_request_error")) == (200, 1)


async def test_calls_are_counted_by_client_model_and_tag(upstream):
    store = MemoryStore()
    async with open_gateway(lanes(upstream.url), store=store) as client:
        await client.chat("a", headers={"x_abreast_client": "notebook", "x_abreast_tag": "draft"})
        await client.chat("b", headers={"x_abreast_client": "notebook"})
        await client.post("/v1/chat/completions", chat("c"), key="token-of-this-test.agent")
        await client.post("/v1/chat/completions", chat("d"), user_agent="OpenAI/Python 3.49.0")
    found = ServedSums(each_outcome(store, "serve-1")).totals()
    assert {name: count for name, (count, _) in found["client"].items()} == {
        "notebook": 2,
        "agent": 1,
        "OpenAI": 1,
    }
    assert found["client"]["notebook"][1].usd == pytest.approx(0.01)
    assert {name: count for name, (count, _) in found["tag"].items()} == {"draft": 1}
    assert list(found["model"]) == ["openai/gpt-x"]
    lanes_drawn = {one.lane for one in each_outcome(store, "serve-1")}
    assert lanes_drawn == {"client notebook", "client agent", "client OpenAI"}


async def test_lanes_by_client_are_live(upstream):
    store, gate = MemoryStore(), Gate()

    async def wait(request, body):
        await gate.pass_(body["messages"][0]["content"])
        return web.json_response(chat_reply())

    upstream.answer = wait
    source = PageSource(store)

    def running():
        page.refresh()
        return {name: len(lane.running) for name, lane in page.view.lanes.items()}

    async with open_gateway(lanes(upstream.url), store=store) as client:
        page = source.reader.get("serve-1")
        names = ("notebook", "agent", "agent")
        asking = [
            asyncio.create_task(client.chat(f"{at}", headers={"x_abreast_client": name}))
            for at, name in enumerate(names)
        ]
        await until(lambda: running().get("client agent") == 2)
        assert running()["client notebook"] == 1
        gate.open_all()
        await asyncio.gather(*asking)
    assert set(running().values()) == {0}


async def test_equal_requests_are_items_of_their_own(upstream):
    store = MemoryStore()
    async with open_gateway(lanes(upstream.url), store=store) as client:
        await asyncio.gather(*(client.chat("same") for _ in range(3)))
    keys = sorted(one.path.rpartition("-")[2] for one in each_outcome(store, "serve-1"))
    assert (keys, len(upstream.requests)) == (["0", "1", "2"], 3)


async def test_a_resumed_run_answers_what_it_recorded_and_asks_the_rest(upstream):
    store = MemoryStore()
    async with open_gateway(lanes(upstream.url), store=store) as client:
        before = await client.chat("known")
    upstream.answer = None
    async with open_gateway(lanes(upstream.url), store=store, resume="serve-1") as client:
        assert (await client.chat("known")).body == before.body
        upstream.answer = reply_hi
        assert (await client.chat("new")).status == 200
        assert (await client.chat("known")).status == 200  # the second one was never asked
    assert len(upstream.requests) == 3


async def test_a_call_that_failed_is_asked_again_in_a_resumed_run(upstream):
    store = MemoryStore()

    async def refuse(request, body):
        return web.json_response({"error": {"message": "no"}}, status=400)

    upstream.answer = refuse
    async with open_gateway(lanes(upstream.url), store=store) as client:
        assert (await client.chat("x")).status == 400
    upstream.answer = reply_hi
    async with open_gateway(lanes(upstream.url), store=store, resume="serve-1") as client:
        assert (await client.chat("x")).status == 200


async def test_a_stopped_gateway_says_so(upstream):
    gate = Gate()
    upstream.answer = holding(gate)
    async with open_gateway(lanes(upstream.url, width=1), ahead=1) as client:
        first = asyncio.create_task(client.chat("first"))
        await gate.wait_for("first")
        waiting = [asyncio.create_task(client.chat(f"w{n}")) for n in range(3)]
        await until(lambda: client.gateway.calls == 4)
        client.gateway.close()
        late = await client.chat("late")
        gate.open_all()
        assert (await first).status == 200  # what is under way is not thrown away
        statuses = Counter([answer.status for answer in await asyncio.gather(*waiting)])
    assert (late.status, late.json["error"]["code"]) == (503, "server_is_overloaded")
    assert statuses[503] >= 2


async def test_a_client_that_leaves_the_line_is_not_asked_for(upstream):
    gate = Gate()
    upstream.answer = holding(gate)
    async with open_gateway(lanes(upstream.url, width=1), ahead=1) as client:
        first = asyncio.create_task(client.chat("first"))
        await gate.wait_for("first")
        leaving = [asyncio.create_task(client.chat(f"w{n}")) for n in range(5)]
        await until(lambda: client.gateway.calls == 6)
        for one in leaving:
            one.cancel()
        await asyncio.wait(leaving)
        await until(lambda: not client.gateway.waiting)
        gate.open_all()
        assert (await first).status == 200
        assert (await client.chat("last")).status == 200
    assert gate.arrived == ["first", "last"]


async def test_equal_requests_are_answered_from_the_cache_only_if_that_is_asked_for(upstream):
    from abreast.serve.answer_cache import AnswerCache

    store = MemoryStore()
    cached = {"cache": AnswerCache(store), "routes": {"cached": True}}
    async with open_gateway(lanes(upstream.url), store=store, **cached) as client:
        first = await client.chat("same")
        again = await client.chat("same")
        streamed = await client.chat("same", stream=True)
    assert (again.body, len(upstream.requests)) == (first.body, 2)
    assert streamed.body == first.body  # this provider does not stream


async def test_an_answer_is_in_the_cache_while_it_is_still_being_stored(upstream, monkeypatch):
    from abreast.serve.answer_cache import AnswerCache

    store, may_store = MemoryStore(), threading.Event()
    keep = store.keep_reply

    def keep_late(*facts):
        assert may_store.wait(60)
        keep(*facts)

    monkeypatch.setattr(store, "keep_reply", keep_late)
    cached = {"cache": AnswerCache(store), "routes": {"cached": True}}
    async with open_gateway(lanes(upstream.url), store=store, **cached) as client:
        first, again = await client.chat("same"), await client.chat("same")
        may_store.set()
    assert (again.body, len(upstream.requests)) == (first.body, 1)


def lane_of(client):
    return client.gateway._routes.find(Chat(), "gpt-x").caller.lane


async def test_a_wait_that_is_surely_too_long_is_refused_at_once(upstream):
    async with open_gateway(lanes(upstream.url)) as client:
        lane_of(client).server.hold(SYSTEM_CLOCK.now() + 1000)
        answer = await client.chat(headers={"x_abreast_timeout": "900"})
        assert (answer.status, upstream.requests) == (429, [])
        assert 950 < int(answer.headers["retry-after"]) <= 1000
        waiting = asyncio.create_task(client.chat(headers={"x_abreast_timeout": "1100"}))
        await until(lambda: client.gateway.calls == 2)
        assert not waiting.done()  # it may yet be in time
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_calls_that_wait_are_refused_when_their_lane_closes_for_too_long(upstream):
    gate = Gate()

    async def answer(request, body):
        await gate.pass_(body["messages"][0]["content"])
        return web.json_response({}, status=429, headers={"retry-after": "1000"})

    upstream.answer = answer
    timeout = {"x_abreast_timeout": "900"}
    async with open_gateway(lanes(upstream.url, width=1), ahead=1) as client:
        first = asyncio.create_task(client.chat("first", headers=timeout))
        await gate.wait_for("first")
        others = [asyncio.create_task(client.chat(f"w{n}", headers=timeout)) for n in range(3)]
        await until(lambda: client.gateway.calls == 4)
        gate.open_all()
        answers = [await first, *await asyncio.gather(*others)]
    assert [one.status for one in answers] == [429] * 4
    assert all(950 < int(one.headers["retry-after"]) <= 1000 for one in answers)
    assert len(upstream.requests) == 1


async def test_a_parked_lane_is_tried_again_by_itself(upstream):
    async def spent(request, body):
        error = {"message": "none left", "type": "insufficient_quota", "code": "insufficient_quota"}
        return web.json_response({"error": error}, status=429)

    upstream.answer = spent
    async with open_gateway(lanes(upstream.url)) as client:
        first = await client.chat("first")
        again = await client.chat("again")
        assert [first.status, again.status, len(upstream.requests)] == [402, 402, 1]
        assert 1 <= int(again.headers["retry-after"]) <= 60
        server = lane_of(client).server
        server.park(server.parked, SYSTEM_CLOCK.now())  # as if a minute had passed
        upstream.answer = reply_hi
        assert (await client.chat("later")).status == 200


async def test_the_limits_of_a_shared_lane_are_those_of_the_store_s_ledger(upstream, tmp_path):
    settings = lanes(upstream.url, width=2, shared=True, adaptive=False)
    with closing(SqliteStore(tmp_path / "runs.db")) as store:
        async with open_gateway(settings, store=store) as client:
            answers = await asyncio.gather(*(client.chat(f"{at}") for at in range(6)))
            assert list(store.ledgers()) == ["openai"]  # which other processes keep to as well
    assert {answer.status for answer in answers} == {200}
    assert upstream.peak <= 2

"""Replays: the same bytes without a provider, in order, and a clear error for what is unknown."""

import asyncio

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import NoSuchRun
from abreast.serve.answers.outlet import Outlet
from abreast.serve.recording import (
    Recording,
    answer_facts,
    digest_of,
    send_recorded,
    shortened,
)
from abreast.store.port import each_outcome
from abreast.testing import MemoryStore
from abreast.views.served import call_facts
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


@pytest.fixture
def store():
    return MemoryStore()


def recording(store, run="serve-1"):
    return Recording(store, store.get(run))


async def replayed(store, upstream):
    """A gateway that answers from the recorded run alone."""
    return open_gateway(lanes(upstream.url), recording=recording(store))


async def test_a_session_is_replayed_byte_for_byte_without_a_provider(upstream, store):
    stream = [
        b'data: {"choices":[{"index":0,"delta":{"content":"H\xc3\xa9"}}]}\n\n',
        b"data: [DONE]\n\n",
    ]

    async def answer(request, body):
        if not body.get("stream"):
            return web.json_response(chat_reply(), headers={"x-request-id": "req-7"})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for part in stream:
            await response.write(part)
        return response

    upstream.answer = answer

    async def session(client):
        return [
            await client.chat("one"),
            await client.chat("one", stream=True),
            await client.post("/v1/chat/completions", chat(n=3) | {"model": "local/smollm2"}),
        ]

    async with open_gateway(lanes(upstream.url), store=store) as client:
        before = await session(client)
    made = len(upstream.requests)
    async with await replayed(store, upstream) as client:
        after = await session(client)
    assert [(one.status, one.body) for one in after] == [(one.status, one.body) for one in before]
    assert [one.headers["content-type"] for one in after] == [
        one.headers["content-type"] for one in before
    ]
    assert after[0].headers["x-request-id"] == "req-7"
    assert (len(upstream.requests), made) == (2, 2)
    assert [one.status for one in before] == [200, 200, 400]


async def test_equal_requests_get_their_answers_in_the_recorded_order(upstream, store):
    async def count(request, body):
        return web.json_response(chat_reply(f"answer {len(upstream.requests)}"))

    upstream.answer = count
    async with open_gateway(lanes(upstream.url), store=store) as client:
        before = [(await client.chat("same")).body for _ in range(3)]
    async with await replayed(store, upstream) as client:
        after = [(await client.chat("same")).body for _ in range(4)]
    assert after == [*before, before[-1]]
    assert len(set(before)) == 3


async def test_an_unknown_request_shows_how_the_nearest_recorded_one_differs(upstream, store):
    async with open_gateway(lanes(upstream.url), store=store) as client:
        await client.chat("the weather in Paris", temperature=0.5)
        await client.chat("something else altogether")
    async with await replayed(store, upstream) as client:
        answer = await client.chat("the weather in Rome", temperature=0.5)
        other = await client.post("/v1/messages", message())
    told = answer.json["error"]["message"]
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    assert '-   "content": "the weather in Paris"' in told
    assert '+   "content": "the weather in Rome"' in told
    assert "altogether" not in told
    assert (other.status, other.json["error"]["type"]) == (400, "invalid_request_error")
    assert "none of this API" in other.json["error"]["message"]
    assert len(upstream.requests) == 2


def test_who_asks_does_not_make_another_request():
    body = chat("x")
    same = {**body, "metadata": {"user_id": "a"}, "user": "b", "prompt_cache_key": "c"}
    assert digest_of("chat", body) == digest_of("chat", same)
    assert digest_of("chat", body) != digest_of("responses", body)
    assert digest_of("chat", body) != digest_of("chat", {**body, "stream": True})
    turn = {"role": "user", "content": "x"}
    first, second = ({"input": [{**turn, "id": name}, "odd"]} for name in ("msg_1", "msg_2"))
    assert digest_of("responses", first) == digest_of("responses", second)


@given(st.binary(max_size=50), st.sampled_from([200, 429]), st.sampled_from(["a/b", ""]))
def test_an_answer_is_read_back_as_it_was(body, status, kind):
    first, second = Outlet(), Outlet()
    first.begin(status, kind, {"x-request-id": "1"})
    first.send(body)
    send_recorded(answer_facts(first), second)
    assert second.head == first.head
    assert second.take() == body
    assert second.ended


def test_long_texts_are_recorded_in_part():
    found = shortened({"a": ["x" * 30_000, {"b": 1}], "c": "\ud800"})
    assert len(found["a"][0]) < 20_100
    assert found["a"][0].endswith("… and 10000 characters")
    assert (found["a"][1], found["c"]) == ({"b": 1}, "?")


async def test_a_cancelled_call_has_no_answer_and_a_run_without_calls_no_replay(upstream, store):
    forever = asyncio.Event()

    async def wait(request, body):
        await forever.wait()

    upstream.answer = wait
    async with open_gateway(lanes(upstream.url), store=store) as client:
        asking = asyncio.create_task(client.chat())
        await until(lambda: upstream.at_once == 1)
        asking.cancel()
        await asyncio.wait([asking])
    [outcome] = each_outcome(store, "serve-1")
    assert call_facts(outcome) is None
    with pytest.raises(NoSuchRun, match="no recorded calls"):
        recording(store)


async def test_a_large_request_is_recorded_shortened_and_still_replayed(upstream, store):
    text = "word " * 10_000
    async with open_gateway(lanes(upstream.url), store=store) as client:
        before = await client.chat(text)
    async with await replayed(store, upstream) as client:
        assert (await client.chat(text)).body == before.body
    [outcome] = each_outcome(store, "serve-1")
    assert len(outcome.body or "") < 25_000


async def test_the_texts_of_a_call_are_recorded_once(upstream, store):
    async with open_gateway(lanes(upstream.url), store=store) as client:
        await client.chat("a question that is looked for")
    events = store.events("serve-1", limit=100)
    with_texts = [event.kind for event in events if "looked for" in (event.body or "")]
    assert with_texts == ["item-settled"]
    assert [event.body for event in events if event.kind == "call-settled"] == [None]


async def test_a_budget_s_reservation_is_written_before_the_call_is_sent(upstream, store):
    written = []

    async def answer(request, body):
        written.append([one.kind for one in store.events("serve-1", limit=100)])
        return web.json_response(chat_reply())

    upstream.answer = answer
    async with open_gateway(lanes(upstream.url), store=store, budget="1Mtok") as client:
        assert (await client.chat("one")).status == 200
    assert "call-started" in written[0]


async def test_a_call_whose_item_was_not_recorded_is_asked_again(upstream, store):
    commit = store.commit

    def lose_items(run_id, epoch, events, spent):
        commit(run_id, epoch, [one for one in events if one.kind != "item-settled"], spent)

    store.commit = lose_items  # as if the process had been killed between the two
    async with open_gateway(lanes(upstream.url), store=store) as client:
        first = await client.chat("one")
    store.commit = commit
    async with open_gateway(lanes(upstream.url), store=store, resume="serve-1") as client:
        again = await client.chat("one")
    assert (again.body, len(upstream.requests)) == (first.body, 2)

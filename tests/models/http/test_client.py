"""The HTTP client: one attempt per call, its limits, its connections and its secrets."""

import asyncio
import gc
import pickle
import socket
import traceback
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    KeyRefused,
    NoSuchModel,
    QuotaSpent,
    Refused,
    ReplyBroken,
    ReplyTimeout,
    ServerFault,
    Throttled,
    TooLong,
    Unavailable,
)
from abreast.models.http.client import HttpClient, endpoint
from abreast.models.providers.anthropic import Anthropic
from abreast.models.providers.gemini import Gemini
from abreast.models.providers.openai import OpenAI
from abreast.models.providers.provider import Events
from abreast.testing.storm import FAULTS, open_storm
from tests.executors.traces import run_and_leave_nothing
from tests.models.serving import KEY, Recorded, ask, closing, events, serving, speaking


def openai(url: str, **options) -> OpenAI:
    return OpenAI("openai/storm", f"{url}/v1", KEY, **options)


def anthropic(url: str, **options) -> Anthropic:
    return Anthropic("anthropic/storm", f"{url}/v1", KEY, **options)


def gemini(url: str, **options) -> Gemini:
    return Gemini("gemini/storm", f"{url}/v1beta", KEY, **options)


every_adapter = pytest.mark.parametrize("make", [openai, anthropic, gemini])
both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

# The error that each fault of the storm causes, without and with streaming.
DOCUMENTED = {
    "500": (ServerFault, ServerFault),
    "502": (Unavailable, Unavailable),
    "503": (Unavailable, Unavailable),
    "529": (Unavailable, Unavailable),
    "reset": (ConnectionLost, ConnectionLost),
    "reset-body": (ConnectionLost, ConnectionLost),
    "stall": (ReplyTimeout, ReplyTimeout),
    "stall-body": (ReplyTimeout, ReplyTimeout),
    "truncated": (ReplyBroken, ConnectionLost),
    "malformed": (ReplyBroken, ReplyBroken),
    "empty": (ReplyBroken, ReplyBroken),
    "huge": (ReplyBroken, ReplyBroken),
    "html": (ReplyBroken, ReplyBroken),
    "refusal": (Refused, Refused),
    "401": (KeyRefused, KeyRefused),
    "403": (KeyRefused, KeyRefused),
    "404": (NoSuchModel, NoSuchModel),
    "context": (TooLong, TooLong),
    "429": (Throttled, Throttled),
    "429-bare": (Throttled, Throttled),
    "429-date": (Throttled, Throttled),
    "429-concurrency": (Throttled, Throttled),
    "quota": (QuotaSpent, QuotaSpent),
}
KEEPS_RAW = {
    "reset-body",
    "stall-body",
    "truncated",
    "malformed",
    "empty",
    "huge",
    "html",
    "refusal",
}


async def failure_of(
    model, prompt: str = "Hello", *, stream: bool = False, **options
) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await model.complete(ask(prompt, **options), [].append if stream else None)
    return caught.value


def test_every_fault_of_the_storm_is_documented():
    assert DOCUMENTED.keys() == FAULTS.keys()


@every_adapter
@both_ways
async def test_each_fault_gives_its_documented_error(make, stream):
    async with (
        open_storm() as storm,
        closing(make(storm.url)) as patient,
        closing(make(storm.url, stall=1.0)) as hasty,
    ):
        for fault, kinds in DOCUMENTED.items():
            model = hasty if fault.startswith("stall") else patient
            error = await failure_of(model, f"fault-{fault}", stream=stream)
            assert type(error) is kinds[stream], fault
            assert str(error).startswith(model.name), fault
            assert "\n" not in str(error)
            assert bool(error.raw) or fault not in KEEPS_RAW, fault
        assert storm.stats().arrived == len(DOCUMENTED)  # one attempt each, no retries


@every_adapter
async def test_a_throttled_call_tells_how_long_to_wait_and_which_limit_it_was(make):
    async with open_storm() as storm, closing(make(storm.url)) as model:
        told = await failure_of(model, "fault-429")
        assert (told.retry_after, told.limit) == (1.0, "requests")
        bare = await failure_of(model, "fault-429-bare")
        assert (bare.retry_after, bare.limit) == (None, "requests")
        date = await failure_of(model, "fault-429-date")
        assert 0 <= date.retry_after <= 3  # a whole second, rounded up
        assert (await failure_of(model, "fault-429-concurrency")).limit == "concurrency"


@pytest.mark.parametrize("make", [openai, anthropic])
async def test_a_wait_that_only_the_levels_tell_is_read_from_them(make):
    async with (
        open_storm(rpm=60, burst=1, retry_after="absent") as storm,
        closing(make(storm.url)) as model,
    ):
        await model.complete(ask())
        error = await failure_of(model)
        assert type(error) is Throttled
        assert 0 <= error.retry_after <= 2


async def test_a_request_larger_than_its_limit_is_too_long_rather_than_throttled_for_ever():
    async with open_storm(tpm=100) as storm, closing(openai(storm.url)) as model:
        assert type(await failure_of(model, "word" * 200)) is TooLong


# --- caps and timeouts


@every_adapter
@both_ways
async def test_a_reply_over_the_cap_is_broken_and_its_first_part_kept(make, stream):
    async with open_storm() as storm, closing(make(storm.url, largest=100_000)) as model:
        error = await failure_of(model, "fault-huge", stream=stream)
        assert type(error) is ReplyBroken
        assert "100,000 bytes" in str(error)
        assert 0 < len(error.raw) <= 65_536
        reply = await model.complete(ask(), [].append if stream else None)
        assert reply.finish == "stop"


@both_ways
async def test_a_reply_that_drips_for_ever_is_ended_by_the_total(stream):
    async with open_storm(per_token=60.0) as storm, closing(openai(storm.url, total=0.5)) as model:
        assert type(await failure_of(model, stream=stream)) is ReplyTimeout
        await storm.until(lambda stats: stats.disconnects == 1)


async def test_a_connection_that_is_never_made_is_a_timeout():
    async with (
        speaking(None) as host,
        closing(openai(f"https://{host}", connect=0.05)) as model,
    ):  # no TLS ever comes
        error = await failure_of(model)
        assert type(error) is ReplyTimeout
        assert "no connection within 0.05 s" in str(error)


async def test_a_closed_port_is_a_lost_connection():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with closing(openai(f"http://127.0.0.1:{port}")) as model:
        error = await failure_of(model)
    assert type(error) is ConnectionLost
    assert isinstance(error, ConnectionError)
    assert error.retryable


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
)
async def test_a_server_that_does_not_speak_http_gives_a_broken_reply(said):
    async with speaking(said) as host, closing(openai(f"http://{host}")) as model:
        assert type(await failure_of(model)) is ReplyBroken


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com/v1",
        "ftp://example.com",
        "http://user:pw@example.com",
        "http:///v1",
        "http://a\nb/v1",
    ],
)
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises(ValueError, match="base_url is an address"):
        OpenAI("openai/x", url, KEY)


@pytest.mark.parametrize("key", ["sk-1234\n", "sk 1234\r\nx: y", " sk-1234", "sk-é"])
def test_a_key_that_can_not_be_a_header_is_refused_without_being_told(key):
    with pytest.raises(ValueError, match="authorization") as caught:
        OpenAI("openai/x", key=f"{key}\n")
    assert "1234" not in str(caught.value)


# --- connections


async def test_a_connection_is_used_again_also_after_streams():
    async with open_storm() as storm:
        for make in (openai, anthropic, gemini):
            before = storm.stats().connections
            async with closing(make(storm.url)) as model:
                for stream in (False, True, False, True, False):
                    await model.complete(ask(), [].append if stream else None)
            assert storm.stats().connections == before + 1


async def test_calls_go_side_by_side_without_a_limit():
    async with open_storm(latency=60.0) as storm, closing(openai(storm.url)) as model:
        tasks = [asyncio.create_task(model.complete(ask(f"{n}"))) for n in range(150)]
        await storm.until(lambda stats: stats.in_flight == 150)  # aiohttp's own limit would be 100
        await cancelled(tasks)


def test_one_model_serves_several_loops():
    async def once(model):
        async with open_storm() as storm:
            model._url = endpoint(f"{storm.url}/v1/chat/completions")
            reply = await model.complete(ask())
            await model.close()
            await model.close()
            return reply.text

    model = openai("http://127.0.0.1:1")
    assert asyncio.run(once(model)) == asyncio.run(once(model))


def test_a_model_that_was_not_closed_with_its_loop_complains_of_nothing(caplog):
    async def once(model):
        async with open_storm() as storm:
            model._url = endpoint(f"{storm.url}/v1/chat/completions")
            await model.complete(ask())
            await storm.until(lambda stats: stats.in_flight == 0)
            # The server's side ends first, so that no socket is left open.
        await asyncio.sleep(0)

    model = openai("http://127.0.0.1:1")
    asyncio.run(once(model))
    asyncio.run(once(model))
    assert len(model._http._sessions) == 1
    del model
    gc.collect()
    assert caplog.records == []


async def cancelled(tasks) -> None:
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)


@every_adapter
@both_ways
def test_a_hundred_cancelled_calls_are_a_hundred_disconnects_and_leave_nothing(make, stream):
    async def main():
        async with open_storm(output_min=8, latency=0.0 if stream else 60.0) as storm:
            before = asyncio.all_tasks()
            model = make(storm.url)
            heard, all_heard = set(), asyncio.Event()

            def hear(number):
                heard.add(number)
                if len(heard) == 100:
                    all_heard.set()

            calls = [
                model.complete(
                    ask(f"{n} fault-stall-body"),
                    partial(lambda n, _: hear(n), n) if stream else None,
                )
                for n in range(100)
            ]
            tasks = [asyncio.create_task(call) for call in calls]
            await storm.until(lambda stats: stats.in_flight == 100)
            if stream:
                await all_heard.wait()  # each is in the middle of its reply
            await cancelled(tasks)
            await storm.until(lambda stats: stats.disconnects == 100)
            assert storm.stats().in_flight == 0
            await model.close()
            left = {
                task for task in asyncio.all_tasks() - before if "RequestHandler" not in repr(task)
            }
            assert not left

    run_and_leave_nothing(main)


async def test_a_listener_that_raises_closes_the_connection_and_its_error_is_its_own():
    def choke(piece):
        raise TimeoutError("mine")  # must not be mistaken for a timeout of the connection

    async with open_storm(output_min=8) as storm, closing(openai(storm.url)) as model:
        with pytest.raises(TimeoutError, match="mine"):
            await model.complete(ask("fault-stall-body"), choke)
        await storm.until(lambda stats: stats.disconnects == 1)


# --- secrets


def told(error: BaseException) -> str:
    """All texts that can be printed of an error."""
    assert error.__context__ is None or error.__suppress_context__
    lines = traceback.format_exception(error)
    return "".join(
        [str(error), repr(error), error.raw, repr(error.details), repr(vars(error)), *lines]
    )


@every_adapter
@both_ways
async def test_a_key_is_in_no_error_even_if_the_server_sends_it_back(make, stream):
    echo = {
        "message": f"key {KEY} and x{KEY}x\n{KEY}",
        "type": "x",
        "code": KEY,
        "content": [],
        "key": KEY,
    }
    answers = [
        Recorded({"error": echo}, status=status)
        for status in (400, 401, 403, 404, 413, 429, 500, 529)
    ]
    answers += [
        Recorded(raw=KEY.encode(), status=502, kind="text/html"),
        Recorded(raw=KEY.encode()),
    ]
    answers += [
        Recorded(raw=b"x", kind=f"text/{KEY}"),
        Recorded(echo),
        Recorded({"error": echo}),
        Recorded([KEY]),
    ]
    answers += [
        Recorded(raw=b"x" * 65_530 + KEY.encode(), status=500),
        events(echo),
        events({"error": echo}),
    ]
    answers += [Recorded(raw=f"data: {KEY}\n\n".encode(), kind="text/event-stream")]
    for answer in answers:
        async with serving(answer) as server, closing(make(server.url)) as model:
            error = await failure_of(model, stream=stream)
            assert KEY[:12] not in told(error), answer
            assert KEY.encode() not in pickle.dumps(error)
            assert KEY not in repr(model) + repr(model._http)


@every_adapter
async def test_a_key_is_in_no_local_variable_that_a_traceback_shows(make):
    async with (
        open_storm() as storm,
        closing(make(storm.url, stall=1.0, headers={"x-more": f"{KEY}-2"})) as model,
    ):
        for fault in DOCUMENTED:
            error = await failure_of(model, f"fault-{fault}")
            shown = "".join(
                traceback.TracebackException.from_exception(error, capture_locals=True).format()
            )
            assert KEY not in shown.replace(f"KEY = '{KEY}'", ""), fault


async def test_no_cookie_is_kept_and_this_machine_is_reached_without_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    answer = Recorded({"error": "no"}, status=500, headers={"set-cookie": "a=b"})
    async with (
        serving(answer) as server,
        closing(openai(server.url.replace("127.0.0.1", "localhost"))) as model,
    ):
        for _ in range(2):
            assert type(await failure_of(model)) is ServerFault
        assert "cookie" not in server.headers[1]
        assert server.headers[1]["authorization"] == f"Bearer {KEY}"


def test_a_short_word_is_not_taken_for_a_secret():
    assert HttpClient("x/y", {"authorization": "Bearer abc"}).clean("abc") == "abc"
    assert (
        HttpClient("x/y", {"authorization": 'Bearer a"b/c\\d'}).clean('{"k": "a\\"b/c\\\\d"}')
        == '{"k": "***"}'
    )


# --- server-sent events


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1),
        max_size=5,
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_events_are_the_same_wherever_the_body_was_cut(texts, newline, cuts):
    body = "".join(
        f": note{newline}event: x{newline}data: {text}{newline}{newline}" for text in texts
    ).encode()
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    parser = Events()
    found = [data for a, b in pairwise(edges) for data in parser.feed(body[a:b])]
    assert found == [text.encode() for text in texts]
    assert parser.end() == []


def test_data_over_several_lines_is_one_event():
    assert Events().feed(b"data: a\ndata:b\n\ndata: c\n\n") == [b"a\nb", b"c"]


def test_an_event_that_was_cut_off_is_none_but_the_end_marker_is():
    for rest, left in (
        (b"data: [DONE]", [b"[DONE]"]),
        (b"data: [DONE]\n", [b"[DONE]"]),
        (b'data: {"a": 1', []),
    ):
        parser = Events()
        assert parser.feed(rest) == []
        assert parser.end() == left


PIECE = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@asynccontextmanager
async def streaming(end):
    """A server that sends all of a stream except its end, for which it waits.

    Its address, and whoever connected.
    """
    peers = set()

    async def stream(request):
        peers.add(request.transport.get_extra_info("peername"))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(PIECE)
        await end.wait()
        return response

    runner = web.ServerRunner(web.Server(stream, handler_cancellation=True), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", peers
    finally:
        await runner.cleanup()


async def test_a_stream_that_never_closes_after_its_end_marker_is_whole():
    async with streaming(asyncio.Event()) as (url, _), closing(openai(url)) as model:
        assert (await model.complete(ask(), [].append)).text == "hi"


async def test_a_stream_that_closes_soon_after_its_end_marker_keeps_its_connection():
    end = asyncio.Event()

    def hear(piece):
        asyncio.get_running_loop().call_later(
            0.01, end.set
        )  # after the marker, which came with the piece, was seen

    async with streaming(end) as (url, peers), closing(openai(url)) as model:
        for _ in range(3):
            end.clear()
            await model.complete(ask(), hear)
        assert len(peers) == 1

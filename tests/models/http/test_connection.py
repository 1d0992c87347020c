"""HTTP connections: all forms of answers, and connections with and without keep-alive."""

import asyncio
import itertools
import ssl
import zlib
from contextlib import asynccontextmanager

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    ReplyBroken,
    ReplyTimeout,
    RequestRefused,
)
from abreast.models.http import connection as module
from abreast.models.http.client import HttpClient, endpoint
from abreast.models.providers.openai import OpenAI
from tests.models.serving import ask

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nx-a: 2\r\n\r\n"
    b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
)
ANNOUNCED = b"HTTP/1.1 100 Continue\r\nx-early: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + LENGTH
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\nhello"
OLD = LENGTH.replace(b"1.1", b"1.0")
CLOSED = LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


class Talk:
    """The requests and connections of a server."""

    def __init__(self):
        self.url, self.requests, self.connections, self.gone = "", [], 0, 0
        self.changed = asyncio.Condition()

    async def until(self, met):
        async with self.changed:
            await self.changed.wait_for(met)


@asynccontextmanager
async def talking(*answers, hang_up=False, tls=None):
    """A server that gives these answers, each in parts, and repeats the last one."""
    talk, rest, tasks, writers = Talk(), list(answers), [], []

    async def serve(reader, writer):
        tasks.append(asyncio.current_task())
        writers.append(writer)
        talk.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                talk.requests.append((head, await reader.readexactly(size)))
                parts = rest.pop(0) if len(rest) > 1 else rest[0]
                for part in [parts] if isinstance(parts, bytes) else parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                if hang_up:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if hang_up == "reset" else writer.close()
            async with talk.changed:
                talk.gone += 1
                talk.changed.notify_all()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    talk.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield talk
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks)


@asynccontextmanager
async def client(**options):
    http = HttpClient("x/y", {"authorization": "Bearer sk-secret"}, **options)
    try:
        yield http
    finally:
        await http.close()


async def until(met):
    """Run the loop until the condition is met; pytest's timeout is the limit."""
    while not met():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


def pool_of(http):
    (pools,) = http._pools.values()
    (pool,) = pools.values()
    return pool


async def posted(http, url, body=b"{}"):
    return await http.post(endpoint(url), body)


async def streamed(http, url):
    exchange = await http.open(endpoint(url), b"{}")
    try:
        parts = []
        while part := await exchange.read():
            parts.append(part)
        return exchange.status, dict(exchange.headers), b"".join(parts)
    finally:
        exchange.close()


# --- answers


@pytest.mark.parametrize("answer", [LENGTH, CHUNKED, ANNOUNCED, CLOSED])
async def test_an_answer_is_read_whole_and_as_a_stream(answer):
    async with talking(answer) as talk, client() as http:
        whole = await posted(http, talk.url)
        assert (whole.status, whole.body) == (200, b"hello")
        assert "x-early" not in whole.headers
        status, headers, body = await streamed(http, talk.url)
        assert (status, headers, body) == (200, whole.headers, b"hello")


async def test_names_of_headers_are_in_lower_case_and_doubles_are_joined():
    async with talking(CHUNKED) as talk, client() as http:
        assert (await posted(http, talk.url)).headers["x-a"] == "1, 2"


async def test_an_answer_without_a_length_ends_with_its_connection():
    async with talking(ENDLESS, hang_up=True) as talk, client() as http:
        assert (await posted(http, talk.url)).body == b"hello"
        assert (await streamed(http, talk.url))[2] == b"hello"
        assert talk.connections == 2


@given(st.sampled_from([LENGTH, CHUNKED, ANNOUNCED]), st.lists(st.integers(1, 120), max_size=8))
def test_an_answer_is_the_same_wherever_it_was_cut(answer, cuts):
    edges = [0, *sorted({cut for cut in cuts if cut < len(answer)}), len(answer)]
    parts = [answer[a:b] for a, b in itertools.pairwise(edges)]

    async def main():
        async with talking(parts) as talk, client() as http:
            assert (await posted(http, talk.url)).body == b"hello"
            assert (await streamed(http, talk.url))[2] == b"hello"
            assert talk.connections == 1

    asyncio.run(main())


async def failed(http, url, stream):
    with pytest.raises(CallFailed) as caught:
        await (streamed(http, url) if stream else posted(http, url))
    assert "sk-secret" not in str(caught.value)
    return caught.value


both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@both_ways
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            "another protocol",
        ),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "headers don't end"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "headers don't end"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "no HTTP"),
        (b"\x16\x03\x01 not at all", "no HTTP"),
    ],
)
async def test_what_is_no_http_is_a_broken_reply(answer, said, stream):
    async with talking(answer) as talk, client() as http:
        error = await failed(http, talk.url, stream)
        assert type(error) is ReplyBroken
        assert said in str(error)
        await talk.until(lambda: talk.gone == 1)


@both_ways
@pytest.mark.parametrize("how", [True, "reset"])
async def test_a_connection_that_ends_too_soon_is_lost_and_what_came_is_kept(stream, how):
    async with talking(LENGTH[:-2], hang_up=how) as talk, client() as http:
        error = await failed(http, talk.url, stream)
        assert type(error) is ConnectionLost
        if how is True:
            assert "before the reply was whole" in str(error)
            assert error.raw == "hel"
    async with talking(b"", hang_up=how) as talk, client() as http:
        error = await failed(http, talk.url, stream)
        assert type(error) is ConnectionLost
        assert "127.0.0.1" in str(error)


@both_ways
async def test_a_reply_that_is_too_large_is_not_taken_in(stream):
    more = b"HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\n\r\n" + b"x" * 3_000_000
    async with talking(more) as talk, client(largest=1000) as http:
        error = await failed(http, talk.url, stream)
        assert type(error) is ReplyBroken
        assert "larger than 1,000 bytes" in str(error)
        await talk.until(lambda: talk.gone == 1)


@both_ways
async def test_silence_ends_a_call_and_so_does_the_total_though_bytes_come(stream):
    async with talking(LENGTH[:-2]) as talk, client(stall=0.2) as http:
        assert type(await failed(http, talk.url, stream)) is ReplyTimeout
    async with talking(CHUNKED[:-5]) as talk, client(stall=60.0, total=0.2) as http:
        assert type(await failed(http, talk.url, stream)) is ReplyTimeout


async def test_the_timer_of_one_call_does_not_end_the_next():
    async with talking(LENGTH) as talk, client(stall=0.3) as http:
        loop = asyncio.get_running_loop()
        start = loop.time()
        count = 0
        while loop.time() < start + 0.7:  # the first call's timeout ends during others
            assert (await posted(http, talk.url)).body == b"hello"
            count += 1
        assert talk.connections == 1
        assert count > 2


async def test_a_compressed_reply_that_nobody_asked_for_is_said():
    body = zlib.compress(b'{"choices": []}')
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        b"content-encoding: deflate\r\ncontent-length: %d\r\n\r\n"
    )
    async with talking(head % len(body) + body) as talk:
        model = OpenAI("openai/x", talk.url, "sk-secret")
        with pytest.raises(ReplyBroken, match="compressed"):
            await model.complete(ask())
        with pytest.raises(ReplyBroken, match="compressed"):
            await model.complete(ask(), [].append)
        await model.close()
        assert b"accept-encoding: identity\r\n" in talk.requests[0][0]


# --- requests


async def test_a_request_is_what_the_endpoint_says():
    async with talking(LENGTH) as talk, client(headers={"X-Team": "blue"}) as http:
        await posted(http, f"{talk.url}/v1/m%2Fx/é?alt=sse&b=c d".replace(" ", "%20"), b'{"a":1}')
        head, body = talk.requests[0]
        lines = head.decode().split("\r\n")
        assert lines[0] == "POST /v1/m%2Fx/%C3%A9?alt=sse&b=c%20d HTTP/1.1"
        assert f"host: {talk.url.removeprefix('http://')}" in lines
        assert {"authorization: Bearer sk-secret", "x-team: blue", "content-length: 7"} <= set(
            lines
        )
        assert body == b'{"a":1}'


def test_a_host_of_other_letters_and_an_ipv6_address():
    assert (
        b"\r\nhost: xn--bcher-kva.example:8080\r\n"
        in endpoint("http://bücher.example:8080/v1").lines
    )
    place = endpoint("https://[::1]/v1")
    assert (place.place.host, place.place.port, place.place.secure) == ("::1", 443, True)
    assert b"\r\nhost: [::1]\r\n" in place.lines


@pytest.mark.parametrize("name", ["a b", "a:b", "a\r\nb", "", "ä"])
def test_a_name_that_can_not_be_a_headers_is_refused(name):
    with pytest.raises(ValueError, match="can't be the name of a header"):
        HttpClient("x/y", {}, headers={name: "1"})


async def test_a_host_that_is_none_is_refused():
    async with client() as http:
        with pytest.raises(RequestRefused, match="there is no address like"):
            await posted(http, f"http://{'a' * 70}.example/v1")


# --- connections


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (LENGTH, 1),
        (CHUNKED, 1),
        (CLOSED, 3),
        (LENGTH.replace(b"1.1", b"1.0"), 3),
        (LENGTH + LENGTH, 3),
        (LENGTH + b"x", 3),
    ],
    ids=["length", "chunked", "close", "1.0", "twice", "more"],
)
async def test_a_connection_is_used_again_only_if_it_is_clean(answer, connections):
    async with talking(answer) as talk, client() as http:
        for _ in range(3):
            assert (await posted(http, talk.url)).body == b"hello"
        assert talk.connections == connections


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used():
    async with talking(LENGTH, hang_up=True) as talk, client() as http:
        for count in range(1, 4):
            assert (await posted(http, talk.url)).body == b"hello"
            await talk.until(lambda count=count: talk.gone == count)
            await until(lambda: not any(each.is_open for each in pool_of(http)._open))
        assert talk.connections == 3


async def test_what_comes_when_nobody_asked_ends_the_connection():
    async with (
        talking([LENGTH, b"HTTP/1.1 408 Timeout\r\ncontent-length: 0\r\n\r\n"]) as talk,
        client() as http,
    ):
        for count in range(1, 4):
            assert (await posted(http, talk.url)).body == b"hello"
            await talk.until(lambda count=count: talk.gone == count)
        assert talk.connections == 3


async def test_a_connection_that_was_idle_for_long_is_not_used_again():
    async with talking(LENGTH) as talk, client(idle=0.0) as http:
        await posted(http, talk.url)
        await posted(http, talk.url)
        await talk.until(lambda: talk.gone == 1)
        assert talk.connections == 2


async def test_the_last_one_used_is_used_first_and_calls_side_by_side_have_their_own():
    async with talking(LENGTH) as talk, client() as http:
        await asyncio.gather(*(posted(http, talk.url) for _ in range(5)))
        assert talk.connections == 5
        for _ in range(10):
            await posted(http, talk.url)
        assert talk.connections == 5


async def test_an_answer_that_comes_before_the_request_was_sent_ends_the_connection():
    async def answer(reader, writer):
        writer.write(LENGTH.replace(b"200 OK", b"413 Too Large"))
        await reader.read(10)
        await held.wait()
        writer.close()

    held = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with client() as http:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert (await posted(http, url, b"x" * 30_000_000)).status == 413
        assert not pool_of(http)._idle
    held.set()
    server.close()


async def test_closing_while_a_call_waits_ends_that_call():
    async with talking(b"") as talk, client() as http:
        waiting = asyncio.create_task(posted(http, talk.url))
        await until(lambda: talk.requests)
        await http.close()
        with pytest.raises(ConnectionLost):
            await waiting


async def test_names_are_looked_up_once_for_many_connections(monkeypatch):
    loop = asyncio.get_running_loop()
    asked, real = [], loop.getaddrinfo

    async def getaddrinfo(host, *args, **options):
        asked.append(host)
        return await real(host, *args, **options)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    async with talking(LENGTH) as talk, client() as http:
        url = talk.url.replace("127.0.0.1", "localhost")
        answers = await asyncio.gather(*(posted(http, url) for _ in range(20)))
        assert {answer.body for answer in answers} == {b"hello"}
        assert asked == ["localhost"]


# --- TLS


@pytest.fixture
def authority():
    return trustme.CA()


def context_of(authority, *names):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


async def test_tls_is_spoken_and_the_certificate_looked_at(authority, monkeypatch, tmp_path):
    module._context.cache_clear()
    async with talking(LENGTH, tls=context_of(authority, "127.0.0.1")) as talk, client() as http:
        with pytest.raises(RequestRefused, match="certificate"):
            await posted(http, talk.url)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    module._context.cache_clear()
    try:
        async with (
            talking(LENGTH, tls=context_of(authority, "127.0.0.1")) as talk,
            client() as http,
        ):
            for _ in range(3):
                assert (await posted(http, talk.url)).body == b"hello"
            assert talk.connections == 1
        async with (
            talking(LENGTH, tls=context_of(authority, "elsewhere.example")) as talk,
            client() as http,
        ):
            with pytest.raises(RequestRefused, match="certificate"):
                await posted(http, talk.url)
    finally:
        module._context.cache_clear()

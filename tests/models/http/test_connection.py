"""Over real sockets: forms of answers and their errors, connections, proxies, redirects, TLS."""

import asyncio
import ssl
import zlib
from base64 import b64encode
from contextlib import asynccontextmanager, suppress

import pytest
import trustme

from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    ReplyBroken,
    ReplyTimeout,
    RequestRefused,
)
from abreast.models.http.client import HttpClient, endpoint, proxy_of
from abreast.models.providers.openai import OpenAI
from tests.models.serving import ask
from tests.turns import until

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


async def posted(http, url, body=b"{}"):
    exchange = await http.open(endpoint(url), body)
    try:
        return await exchange.answer()
    finally:
        exchange.close()


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
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "no HTTP"),
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


@both_ways
async def test_a_call_that_hangs_says_which_bound_ended_it_and_how_to_change_it(stream):
    silent, begun = (b"",), (LENGTH[:-2],)
    for answers, bounds, named in (
        (silent, {"first_byte": 0.2, "stall": 60.0}, "first_byte"),
        (silent, {"stall": 0.2}, "timeout"),
        (begun, {"first_byte": 60.0, "stall": 0.2}, "timeout"),
    ):
        async with talking(*answers) as talk, client(**bounds) as http:
            said = str(await failed(http, talk.url, stream))
        assert f"within 0.2 s, the lane's {named}" in said
        assert f"`{named} = SECONDS` under [lanes.x] in abreast.toml" in said


async def test_a_refused_connection_was_not_sent_and_a_lost_one_was():
    async with talking(b"", hang_up=True) as talk, client() as http:
        assert not (await failed(http, talk.url, stream=False)).unsent
    async with client() as http:
        assert (await failed(http, talk.url, stream=False)).unsent


async def test_a_compressed_reply_is_read_and_one_that_is_broken_is_told():
    whole = b'{"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}'
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        b"content-encoding: deflate\r\ncontent-length: %d\r\n\r\n"
    )
    packed = zlib.compress(whole)
    answers = (head % len(packed) + packed, head % 7 + b"notzlib", head % 0)
    async with talking(*answers) as talk:
        model = OpenAI("openai/x", talk.url, "sk-secret")
        assert (await model.complete(ask())).text == "hi"
        for _ in range(2):
            with pytest.raises(ReplyBroken, match="can't be read"):
                await model.complete(ask())
        await model.close()


@both_ways
async def test_a_small_reply_that_unpacks_to_a_huge_one_is_too_large(stream):
    packed = zlib.compress(b"x" * 3_000_000)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: deflate\r\ncontent-length: %d\r\n\r\n"
    async with talking(head % len(packed) + packed) as talk, client(largest=1000) as http:
        error = await failed(http, talk.url, stream)
        assert type(error) is ReplyBroken
        assert "larger than 1,000 bytes" in str(error)


# --- requests


async def test_a_request_is_what_the_endpoint_says():
    async with talking(LENGTH) as talk, client(headers={"X-Team": "blue"}) as http:
        await posted(http, f"{talk.url}/v1/m%2Fx/é?alt=sse&b=c d".replace(" ", "%20"), b'{"a":1}')
        head, body = talk.requests[0]
        lines = head.decode().split("\r\n")
        assert lines[0] == "POST /v1/m%2Fx/%C3%A9?alt=sse&b=c%20d HTTP/1.1"
        sent = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in lines[1:]}
        assert sent["host"] == talk.url.removeprefix("http://")
        assert sent["authorization"] == "Bearer sk-secret"
        assert (sent["x-team"], sent["content-length"]) == ("blue", "7")
        assert body == b'{"a":1}'


@pytest.mark.parametrize("name", ["a b", "a:b", "a\r\nb", "", "ä"])
def test_a_name_that_can_not_be_a_headers_is_refused(name):
    with pytest.raises(ValueError, match="can't be the name of a header"):
        HttpClient("x/y", {}, headers={name: "1"})


async def test_a_host_that_is_none_is_refused():
    async with client() as http:
        with pytest.raises(RequestRefused, match="there is no address like"):
            await posted(http, f"http://{'a' * 70}.example/v1")


# --- connections


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


async def test_closing_while_a_call_waits_ends_that_call():
    async with talking(b"", hang_up=True) as talk, client() as http:
        waiting = asyncio.create_task(posted(http, talk.url))
        await until(lambda: talk.requests)
        await http.close()
        with pytest.raises(ConnectionLost):
            await waiting


# --- redirects


def moved(place, status=307):
    return b"HTTP/1.1 %d Moved\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n" % (
        status,
        place.encode(),
    )


async def test_a_redirect_within_the_host_is_followed_with_the_same_body():
    async with talking(moved("/v2/x"), moved("y", 308), LENGTH) as talk, client() as http:
        assert (await posted(http, f"{talk.url}/v1", b"body")).body == b"hello"
        lines = [head.split(b"\r\n")[0] for head, _ in talk.requests]
        assert lines == [f"POST {path} HTTP/1.1".encode() for path in ("/v1", "/v2/x", "/v2/y")]
        assert {body for _, body in talk.requests} == {b"body"}


@pytest.mark.parametrize(
    "place", ["http://elsewhere.example/v1", "ftp://127.0.0.1/", "http://[", ""]
)
async def test_a_redirect_to_another_place_is_the_answer(place):
    async with talking(moved(place, 307 if place else 303)) as talk, client() as http:
        assert (await posted(http, talk.url)).status in {307, 303}
        assert len(talk.requests) == 1


async def test_a_redirect_without_end_is_refused():
    async with talking(moved("/again")) as talk, client() as http:
        with pytest.raises(RequestRefused, match="too many redirects"):
            await posted(http, talk.url)
        assert len(talk.requests) == 5


# --- proxies


@pytest.fixture
def proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


async def test_a_proxy_of_the_environment_is_used_with_its_password(proxies):
    async with talking(LENGTH) as talk, client() as http:
        proxies.setenv("http_proxy", talk.url.replace("://", "://me:pass-word@"))
        assert (await posted(http, "http://api.example/v1")).body == b"hello"
        head = talk.requests[0][0].decode()
        assert head.startswith("POST http://api.example/v1 HTTP/1.1\r\n")
        assert f"Basic {b64encode(b'me:pass-word').decode()}" in head
        assert http.clean("pass-word") == "***"


async def test_a_proxy_connects_to_a_host_with_tls_and_its_refusal_is_told(
    proxies, authority, tmp_path
):
    trust(authority, tmp_path, proxies)
    asked = []

    async def connect(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) > 1:
            writer.write(b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n")
        else:
            port = int(talk.url.rpartition(":")[2])
            inner, outer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(pass_on(reader, outer), pass_on(inner, writer))
        writer.close()

    proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    proxies.setenv("https_proxy", f"http://127.0.0.1:{port}")
    async with talking(LENGTH, tls=context_of(authority, "api.example")) as talk:
        async with client() as http:
            assert (await posted(http, "https://api.example/v1")).body == b"hello"
        async with client() as http:
            with pytest.raises(RequestRefused, match="the proxy answers 407"):
                await posted(http, "https://api.example/v1")
    assert [head.split(b"\r\n")[0] for head in asked] == [b"CONNECT api.example:443 HTTP/1.1"] * 2
    proxy.close()


async def pass_on(reader, writer):
    with suppress(ConnectionError):
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    writer.close()


def test_which_proxy_an_address_has(proxies):
    def of(url):
        return proxy_of(endpoint(url))

    assert of("http://api.example") is None
    proxies.setenv("HTTPS_PROXY", "proxy.example:3128")
    proxies.setenv("no_proxy", "inside.example,.corp.example")
    assert str(of("https://api.example/v1")) == "http://proxy.example:3128"
    assert of("http://api.example/v1") is None
    for host in ("inside.example", "a.corp.example", "localhost", "127.0.0.2", "[::1]"):
        assert of(f"https://{host}/v1") is None
    proxies.setenv("HTTPS_PROXY", "socks5://proxy.example")
    with pytest.raises(ValueError, match="HTTPS_PROXY is no address like"):
        of("https://api.example/v1")


# --- TLS


@pytest.fixture
def authority():
    return trustme.CA()


def context_of(authority, *names):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def trust(authority, tmp_path, monkeypatch):
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))


async def test_tls_is_spoken_and_the_certificate_looked_at(authority, monkeypatch, tmp_path):
    async with talking(LENGTH, tls=context_of(authority, "127.0.0.1")) as talk, client() as http:
        with pytest.raises(RequestRefused, match="can't prove who it is"):
            await posted(http, talk.url)
    trust(authority, tmp_path, monkeypatch)
    async with talking(LENGTH, tls=context_of(authority, "127.0.0.1")) as talk, client() as http:
        for _ in range(3):
            assert (await posted(http, talk.url)).body == b"hello"
        assert talk.connections == 1
    async with (
        talking(LENGTH, tls=context_of(authority, "elsewhere.example")) as talk,
        client() as http,
    ):
        with pytest.raises(RequestRefused, match="can't prove who it is"):
            await posted(http, talk.url)

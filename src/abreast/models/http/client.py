"""The HTTP client of adapters: one attempt per call, with limits on time and size."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from http import HTTPStatus
from ipaddress import ip_address
from ssl import SSLContext
from typing import TypedDict
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    ReplyBroken,
    ReplyTimeout,
    RequestRefused,
)
from abreast.core.frozen import record
from abreast.core.version import VERSION
from abreast.models.http.key_command import KeyCommand
from abreast.models.http.tls import tls_context
from abreast.models.providers.errors import RAW, one_line, raw_of

LARGEST = 8 * 1024 * 1024  # bytes of a reply
KEY_PLACE = "{key}"
"""Stands for the key in the headers of a client whose keys come from a command."""
# Seconds between the end marker of a stream and its end; after that its connection is not reused.
_DRAIN_SECONDS = 0.2
_SHORTEST_SECRET = 4  # characters; a shorter text occurs in many words, and is not masked
_MAX_HEADER_BYTES = 64 * 1024
_MAX_REDIRECTS = 5
# Seconds until the first byte of an answer. One that does not stream begins when it is whole:
# models that reason take minutes, and providers end such calls after about ten. The headers of a
# stream come before its first token, though some gateways hold them back until then.
FIRST_BYTE = 600.0
FIRST_BYTE_OF_STREAM = 300.0
STALL = 600.0  # seconds between two bytes of an answer
_BROKEN = (aiohttp.ClientError, OSError, ValueError)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# The others ask for a GET of something else.
_REDIRECTS = {HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT}


class HttpOptions(TypedDict, total=False):
    """Options of every adapter.

    `connect`, `first_byte`, `stall` and `total` are seconds: to connect, until the first byte of an
    answer, between two of its bytes, and for the whole call. `largest` is the bytes of a reply. The
    values of `headers` are secret, those of `plain_headers` are not. `key_header` carries the key
    in place of the adapter's own header; `key_command` gives the key that stands as `KEY_PLACE` in
    it. `proxy` is an address, or empty for none; by default the environment decides. `ca_file` has
    further certificates.
    """

    connect: float
    first_byte: float
    stall: float
    total: float | None
    largest: int
    headers: Mapping[str, str]
    plain_headers: Mapping[str, str]
    key_header: str | None
    key_command: KeyCommand | None
    proxy: str | None
    ca_file: str | None


def endpoint(url: str) -> URL:
    """The address for requests; raises ValueError if it is invalid."""
    with suppress(ValueError):
        parsed = URL(url)
        if (
            parsed.scheme in {"http", "https"}
            and parsed.host
            and parsed.user is None
            and parsed.password is None
            and url.isprintable()
        ):
            return parsed
    raise ValueError(
        "a base_url is an address like https://api.example.com/v1, without a user or a password"
    )


def proxy_of(url: URL, own: str | None = None) -> URL | None:
    """The proxy for an address: `own` (empty for none), or the one that the environment names.

    That is by HTTPS_PROXY, HTTP_PROXY and NO_PROXY. This machine itself is reached by a proxy only
    if it is `own`. Raises ValueError if the proxy is no address.
    """
    if own is not None:
        return _proxy_address(own, "proxy") if own else None
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or _is_this_machine(url.host or "") or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    return _proxy_address(named, f"{url.scheme.upper()}_PROXY")


def shown(proxy: URL) -> str:
    """A proxy's address without its password."""
    return str(proxy if proxy.password is None else proxy.with_password("***"))


def _proxy_address(named: str, what: str) -> URL:
    with suppress(ValueError):
        proxy = URL(named if "://" in named else f"http://{named}")
        if proxy.scheme in {"http", "https"} and proxy.host:
            return proxy
    raise ValueError(f"{what} is no address like http://proxy:8080")


def _is_this_machine(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


class HttpClient:
    """A provider's connections, opened on demand, separately for each event loop.

    `auth` and the values of `headers` are secrets and never part of an error. `version` and
    `plain_headers` are not secret. The other options are those of `HttpOptions`.
    """

    def __init__(
        self,
        name: str,
        auth: Mapping[str, str],
        *,
        version: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        plain_headers: Mapping[str, str] | None = None,
        key_header: str | None = None,
        key_command: KeyCommand | None = None,
        proxy: str | None = None,
        ca_file: str | None = None,
        connect: float = 30.0,
        first_byte: float | None = None,
        stall: float | None = None,
        total: float | None = None,
        idle: float = 30.0,
        largest: int = LARGEST,
    ) -> None:
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self.name = name
        self.largest = largest
        if key_header is not None and auth:
            (value,) = auth.values()
            auth = {key_header: value.removeprefix("Bearer ")}
        self._key_command = key_command
        self._key_headers = {} if key_command is None else dict(auth)
        secret = {**(auth if key_command is None else {}), **(headers or {})}
        for key, value in [*secret.items(), *(plain_headers or {}).items()]:
            if not _HEADER_NAME.fullmatch(key):
                raise ValueError(f"{name}: {key!r} can't be the name of a header")
            if not (value.isascii() and value.isprintable() and value.strip() == value):
                raise ValueError(
                    f"{name}: the value of {key} has a line break, "
                    "a space or an odd character in it"
                )
        self._secrets: list[str] = []
        self._keep_secret(value.removeprefix("Bearer ") for value in secret.values())
        self._headers = {
            "user-agent": f"abreast/{VERSION}",
            "content-type": "application/json",
            **dict([version] if version else []),
            **{key.lower(): value for key, value in (plain_headers or {}).items()},
            **{key.lower(): value for key, value in secret.items()},
        }
        self._timeout = aiohttp.ClientTimeout(total, connect=connect)
        self._connect, self._total = connect, total
        self.stall = stall or STALL
        self._first_byte = first_byte or stall or FIRST_BYTE
        self._first_byte_of_stream = first_byte or stall or FIRST_BYTE_OF_STREAM
        # The setting that bounds the time to the first byte.
        self._first_bound = "timeout" if stall and not first_byte else "first_byte"
        self._idle = idle
        self._own_proxy = proxy
        self._proxies: dict[URL, URL | None] = {}
        self._ca_file = ca_file

    def __repr__(self) -> str:
        """Shows the provider and the number of event loops."""
        return f"<Http of {self.name}, {len(self._sessions)} sessions>"

    def open(
        self,
        url: URL,
        body: bytes,
        *,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> Awaitable[Exchange]:
        """Send a body and read the headers of the answer; the caller must close the exchange.

        `headers` are further ones of this request. A key of a command that is refused is renewed,
        and the body sent once more.
        """
        first_byte = self._first_byte_of_stream if stream else self._first_byte
        if self._key_command is None:
            return self._send(url, body, headers, first_byte, method)
        return self._send_with_key(self._key_command, url, body, headers, first_byte, method)

    async def _send_with_key(  # noqa: PLR0917 - as `_send`
        self,
        command: KeyCommand,
        url: URL,
        body: bytes,
        headers: Mapping[str, str] | None,
        first_byte: float,
        method: str,
    ) -> Exchange:
        more = dict(headers or {})
        key = await command.key()
        exchange = await self._send(url, body, more | self._headers_with(key), first_byte, method)
        if exchange.status != HTTPStatus.UNAUTHORIZED:
            return exchange
        try:
            renewed = await command.key(refused=key)
        except BaseException:
            exchange.close()
            raise
        if renewed == key:
            return exchange
        exchange.close()
        return await self._send(url, body, more | self._headers_with(renewed), first_byte, method)

    def _headers_with(self, key: str) -> dict[str, str]:
        self._keep_secret([key])
        return {name: value.replace(KEY_PLACE, key) for name, value in self._key_headers.items()}

    async def _send(
        self,
        url: URL,
        body: bytes,
        headers: Mapping[str, str] | None,
        seconds: float,
        method: str,
    ) -> Exchange:
        try:
            for _ in range(_MAX_REDIRECTS):
                proxy = self._proxy(url)
                async with asyncio.timeout(seconds) as limit:
                    response = await self._session().request(
                        method,
                        url,
                        data=aiohttp.BytesPayload(body) if body else None,
                        headers=headers,
                        allow_redirects=False,
                        proxy=proxy,
                        ssl=self._tls(url, proxy),
                    )
                target = _redirected(url, response)
                if target is None:
                    return Exchange(self, response)
                response.release()
                url = target
            failure: CallFailed = RequestRefused(f"{self.name}: too many redirects, to {url.host}")
        except _BROKEN as error:
            failure = (
                self.late("no first byte of an answer", self._first_bound, seconds)
                if limit.expired()
                else self.failure(error, b"", url.host)
            )
        raise failure  # outside of the handler: its frames have the key in local variables

    async def close(self) -> None:
        """Close the connections of this loop; a later call opens new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def __del__(self) -> None:
        """Forget connections of loops that are closed; aiohttp would report them as unclosed."""
        self._forget_closed_loops()

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            with suppress(StopIteration):  # it ends at once: there is nothing left to wait for
                self._sessions.pop(loop).close().send(None)

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            self._forget_closed_loops()
            session = self._sessions[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    keepalive_timeout=self._idle,
                ),
                headers=self._headers,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
            )
        return session

    def _tls(self, url: URL, proxy: URL | None) -> SSLContext | bool:
        """The certificates to trust; they are read (50 ms) only where there is TLS."""
        if url.scheme == "http" and (proxy is None or proxy.scheme == "http"):
            return True
        return tls_context(self._ca_file)

    def _proxy(self, url: URL) -> URL | None:
        origin = url.origin()
        if origin not in self._proxies:
            proxy = self._proxies[origin] = proxy_of(url, self._own_proxy)
            if proxy is not None and proxy.password:
                self._keep_secret([proxy.password])
        return self._proxies[origin]

    def _keep_secret(self, values: Iterable[str]) -> None:
        plain = set(values)
        escaped = {json.dumps(value)[1:-1] for value in plain}
        self._secrets = sorted(
            {*self._secrets, *(one for one in plain | escaped if len(one) >= _SHORTEST_SECRET)},
            key=len,
            reverse=True,
        )

    # --- errors

    def clean(self, text: str) -> str:
        """A text without secrets, in case a server has sent them back."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def broken(self, what: str, body: bytes, status: int | None = None) -> ReplyBroken:
        """The error for a reply that can't be read."""
        return ReplyBroken(
            f"{self.name} sent a reply that can't be read: {what}",
            status=status,
            raw=self.raw(body),
        )

    def raw(self, body: bytes) -> str:
        """The part of a body that errors keep."""
        return raw_of(body, self.clean)

    def late(self, what: str, bound: str, seconds: float, body: bytes = b"") -> ReplyTimeout:
        """The error for a server that sent no byte for so long; names the bound that ended it."""
        lane = self.name.partition("/")[0]
        return ReplyTimeout(
            f"{self.name}: {what} within {seconds:g} s, the lane's {bound}; change it with "
            f"`{bound} = SECONDS` under [lanes.{lane}] in abreast.toml",
            raw=self.raw(body),
        )

    def failure(self, error: BaseException, body: bytes, host: str | None = None) -> CallFailed:
        """The error for a failed connection or answer, with the part received so far."""
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, aiohttp.ServerDisconnectedError):
            said = "Server disconnected"  # its text may be a half of the answer's headers
        reason = one_line(self.clean(said))
        kind: type[CallFailed] = ConnectionLost
        match error:
            case aiohttp.ConnectionTimeoutError():
                kind, what = ReplyTimeout, f"no connection within {self._connect:g} s"
            case TimeoutError():
                return self.late("no whole reply", "timeout", self._total or self.stall, body)
            case aiohttp.ClientHttpProxyError(status=status):
                kind, what = RequestRefused, f"the proxy answers {status}"
            case aiohttp.ClientConnectorCertificateError():
                kind, what = RequestRefused, f"{host} can't prove who it is: {reason}"
            case aiohttp.ClientPayloadError() if "Not enough data" in reason:
                what = "the connection was lost before the reply was whole"
            case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
                return self.broken(f"no HTTP ({reason})", body)
            case ValueError():
                kind, what = RequestRefused, f"there is no address like {host!r}"
            case _:
                what = f"the connection{f' to {host}' if host else ''} was lost: {reason}"
        failure = kind(f"{self.name}: {what}", raw=self.raw(body))
        failure.unsent = isinstance(
            error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
        )
        return failure


def _redirected(url: URL, response: aiohttp.ClientResponse) -> URL | None:
    """Where a redirect leads, if it stays with its host: no other one may get the key."""
    if response.status not in _REDIRECTS:
        return None
    with suppress(ValueError):
        target = url.join(URL(response.headers.get("location", "")))
        is_as_safe = target.scheme in {"https", url.scheme}
        return target if target.host == url.host and is_as_safe else None
    return None


@record(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer of a server."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class AnswerHeaders(Mapping[str, str]):
    """The headers of an answer by their names in lower case; some come more than once.

    They are looked up in what aiohttp has read: most calls ask for one or two of a dozen.
    """

    __slots__ = ("_given",)

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._given = response.headers

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._given.getall(name))

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.lower() for name in self._given))

    def __len__(self) -> int:
        return len({name.lower() for name in self._given})


class Exchange:
    """A request that was sent, and its answer while it is being read."""

    __slots__ = ("_http", "_parts", "_response", "_size", "headers", "largest", "status")

    def __init__(self, http: HttpClient, response: aiohttp.ClientResponse) -> None:
        self._http = http
        self._response = response
        self._parts: list[bytes] = []
        self._size = 0
        self.largest = http.largest  # bytes of the body
        self.status = response.status
        self.headers = AnswerHeaders(response)

    def close(self) -> None:
        """Close the connection, unless the answer was read to its end: then it is free already."""
        if not self._response.closed:
            self._response.close()

    async def answer(self) -> HttpAnswer:
        """Read the whole answer."""
        content = self._response.content
        while not content.at_eof():
            await self.read()
        return HttpAnswer(self.status, self.headers, b"".join(self._parts))

    async def read(self) -> bytes:
        """The next part of the body, empty at its end; raises ReplyBroken if it is too large."""
        limit: asyncio.Timeout | None = None
        content = self._response.content
        try:
            part = content.read_nowait()  # a short answer comes in one piece with its headers
            if not part and not content.at_eof():
                async with asyncio.timeout(self._http.stall) as limit:
                    part = await content.readany()
        except _BROKEN as error:
            failure: CallFailed = (
                self._http.late("no further byte", "timeout", self._http.stall, self.kept())
                if limit is not None and limit.expired()
                else self._http.failure(error, self.kept())
            )
        else:
            self._size += len(part)
            self._parts.append(part)
            if self._size <= self.largest:
                return part
            what = f"it is larger than {self.largest:,} bytes"
            failure = self._http.broken(what, self.kept()[: 2 * RAW], self.status)
        raise failure

    def kept(self) -> bytes:
        """The first part of the body that was read."""
        kept = b""
        for part in self._parts:
            kept += part
            if len(kept) > 2 * RAW:
                break
        return kept

    async def drain(self) -> None:
        """Read a stream to its end, so that its connection can be reused."""
        with suppress(TimeoutError, CallFailed):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await self.read():
                    pass

"""The HTTP client of adapters: one attempt per call, with limits on time and size."""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypedDict
from urllib.parse import quote, urlsplit

from abreast.core.errors import (
    CallFailed,
    ConnectionLost,
    ReplyBroken,
    ReplyTimeout,
    RequestRefused,
)
from abreast.core.version import VERSION
from abreast.models.http.connection import (
    Connection,
    ConnectionPool,
    CutOff,
    HostAddress,
    HttpTimeouts,
    MalformedHttp,
    NotConnected,
)
from abreast.models.providers.errors import RAW, one_line, raw_of

LARGEST = 8 * 1024 * 1024  # bytes of a reply
# Seconds between the end marker of a stream and its end; after that its connection is not reused.
_DRAIN_SECONDS = 0.2
_SHORTEST_SECRET = 4  # characters; a shorter text occurs in many words, and is not masked
_BROKEN = (MalformedHttp, OSError)
_SAFE_IN_TARGET = "/%:?=~!$&'()*+,;@[]"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HttpOptions(TypedDict, total=False):
    """Options of every adapter.

    `connect`, `stall` and `total` are seconds: to connect, without a byte, and for the whole call.
    `largest` is the bytes of a reply.
    """

    connect: float
    stall: float
    total: float | None
    largest: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address for requests, and their first lines."""

    place: HostAddress
    lines: bytes


def endpoint(url: str) -> Endpoint:
    """The endpoint at an address; raises ValueError if it is invalid."""
    parts = urlsplit(url)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or "@" in parts.netloc
        or not url.isprintable()
    ):
        raise ValueError(
            "a base_url is an address like https://api.example.com/v1, without a user or a password"
        )
    secure = parts.scheme == "https"
    target = quote(
        f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", safe=_SAFE_IN_TARGET
    )
    host = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode()
    place = HostAddress(parts.hostname, parts.port or (443 if secure else 80), secure)
    return Endpoint(place, f"POST {target} HTTP/1.1\r\nhost: {host}\r\n".encode())


class HttpClient:
    """A provider's connections, opened on demand, separately for each event loop.

    `auth` and the values of `headers` are secrets and never part of an error. `version` is a header
    that is not secret.
    """

    def __init__(
        self,
        name: str,
        auth: Mapping[str, str],
        *,
        version: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        connect: float = 30.0,
        stall: float = 600.0,
        total: float | None = None,
        idle: float = 30.0,
        largest: int = LARGEST,
    ) -> None:
        self.name = name
        self.largest = largest
        secret = {**auth, **(headers or {})}
        for key, value in secret.items():
            if not _HEADER_NAME.fullmatch(key):
                raise ValueError(f"{name}: {key!r} can't be the name of a header")
            if not (value.isascii() and value.isprintable() and value.strip() == value):
                raise ValueError(
                    f"{name}: the value of {key} has a line break, "
                    "a space or an odd character in it"
                )
        plain = {value.removeprefix("Bearer ") for value in secret.values()}
        escaped = {json.dumps(value)[1:-1] for value in plain}
        self._secrets = sorted(
            (each for each in plain | escaped if len(each) >= _SHORTEST_SECRET),
            key=len,
            reverse=True,
        )
        sent = {
            "user-agent": f"abreast/{VERSION}",
            "accept-encoding": "identity",
            "content-type": "application/json",
            **dict([version] if version else []),
            **{key.lower(): value for key, value in secret.items()},
        }
        self._headers = "".join(f"{key}: {value}\r\n" for key, value in sent.items()).encode()
        self._timeouts = HttpTimeouts(connect, stall, math.inf if total is None else total, idle)
        self._pools: dict[asyncio.AbstractEventLoop, dict[HostAddress, ConnectionPool]] = {}

    def __repr__(self) -> str:
        """Shows the provider and the number of event loops."""
        return f"<Http of {self.name}, {len(self._pools)} sessions>"

    async def post(self, to: Endpoint, body: bytes) -> HttpAnswer:
        """Send a body and read the whole answer, whatever its status.

        Raises a subclass of CallFailed if there is none.
        """
        exchange = await self._send(to, body)
        try:
            return await exchange.answer()
        finally:
            exchange.close()

    async def open(self, to: Endpoint, body: bytes) -> Exchange:
        """Send a body and read the headers of the answer; the caller must close the exchange."""
        exchange = await self._send(to, body)
        try:
            await exchange.head()
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def close(self) -> None:
        """Close the connections of this loop; a later call opens new ones."""
        for pool in self._pools.pop(asyncio.get_running_loop(), {}).values():
            await pool.close()

    async def _send(self, to: Endpoint, body: bytes) -> Exchange:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeouts.total
        try:
            connection = await self._pool(loop, to.place).take(until)
            # No local variable holds a secret: a traceback may show local variables.
            connection.send(
                b"%s%scontent-length: %d\r\n\r\n%s" % (to.lines, self._headers, len(body), body),
                until,
            )
            return Exchange(self, connection, to.place.host)
        except (*_BROKEN, ValueError) as error:
            failure = self.failure(error, b"", to.place.host)
        raise failure

    def _pool(self, loop: asyncio.AbstractEventLoop, place: HostAddress) -> ConnectionPool:
        if loop not in self._pools:
            self._pools = {loop: old for loop, old in self._pools.items() if not loop.is_closed()}
        pools = self._pools.setdefault(loop, {})
        if place not in pools:
            pools[place] = ConnectionPool(place, self._timeouts, self.largest)
        return pools[place]

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

    def failure(self, error: BaseException, body: bytes, host: str | None = None) -> CallFailed:
        """The error for a failed connection or answer, with the part received so far."""
        if isinstance(error, TimeoutError):
            what = "connection" if isinstance(error, NotConnected) else "whole reply"
            return ReplyTimeout(f"{self.name}: no {what} in time", raw=self.raw(body))
        reason = one_line(
            self.clean(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        )
        if isinstance(error, MalformedHttp):
            return self.broken(f"no HTTP ({reason})", body)
        if isinstance(error, ssl.SSLCertVerificationError):  # a subclass of ValueError
            return RequestRefused(f"{self.name}: {host} can't prove who it is: {reason}")
        if isinstance(error, ValueError):
            return RequestRefused(f"{self.name}: there is no address like {host!r}")
        if isinstance(error, CutOff) and error.begun:
            return ConnectionLost(
                f"{self.name}: the connection was lost before the reply was whole",
                raw=self.raw(body),
            )
        where = f" to {host}" if host else ""
        return ConnectionLost(
            f"{self.name}: the connection{where} was lost: {reason}", raw=self.raw(body)
        )


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer of a server."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Exchange:
    """A request that was sent, and its answer while it is being read."""

    __slots__ = ("_connection", "_host", "_http", "_is_released", "_parts", "_size")

    def __init__(self, http: HttpClient, connection: Connection, host: str) -> None:
        self._http = http
        self._connection = connection
        self._host = host
        self._is_released = False
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def status(self) -> int:
        """The status of the answer."""
        return self._connection.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer, by names in lower case."""
        return self._connection.headers

    def close(self) -> None:
        """Close the connection, unless the answer was read to its end: then it is free already."""
        if not self._is_released:
            self._is_released = True
            self._connection.hang_up()

    async def head(self) -> None:
        """Wait for status and headers."""
        try:
            await self._connection.head()
        except _BROKEN as error:
            failure = self._failure(error)
        else:
            return
        raise failure

    async def answer(self) -> HttpAnswer:
        """Read the whole answer."""
        connection = self._connection
        try:
            await connection.end()
        except _BROKEN as error:
            self._parts.append(connection.take_parts())
            failure = self._failure(error)
        else:
            body = connection.take_parts()
            if connection.size <= self._http.largest:
                answer = HttpAnswer(connection.status, connection.headers, body)
                self._give_back()
                return answer
            failure = self._too_large(body)
        raise failure

    async def read(self) -> bytes:
        """The next part of the body, empty at its end; raises ReplyBroken if it is too large."""
        try:
            part = await self._connection.part()
        except _BROKEN as error:
            failure = self._failure(error)
        else:
            self._size += len(part)
            if self._size <= self._http.largest:
                self._parts.append(part)
                if not part:
                    self._give_back()
                return part
            failure = self._too_large(self.kept() + part)
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

    def _give_back(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._connection.give_back()

    def _failure(self, error: Exception) -> CallFailed:
        return self._http.failure(
            error, self.kept(), None if self._connection.begun else self._host
        )

    def _too_large(self, body: bytes) -> ReplyBroken:
        what = f"it is larger than {self._http.largest:,} bytes"
        return self._http.broken(what, body[: 2 * RAW], self.status)

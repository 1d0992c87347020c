"""How adapters reach their providers: one attempt per call, capped, timed, and closed when cancelled."""

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
    Garbled,
    HostAddress,
    NotConnected,
    Patience,
)
from abreast.models.providers.errors import RAW, one_line, raw_of

LARGEST = 8 * 1024 * 1024
# seconds that a stream has to end after its end marker; else its connection is not used again
_DRAIN = 0.2
_SHORTEST = 4  # a shorter secret is in every other word
_BROKEN = (Garbled, OSError)
_IN_TARGETS = "/%:?=~!$&'()*+,;@[]"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Wire(TypedDict, total=False):
    """Options of every adapter: seconds to connect, seconds without a byte, seconds in all.

    Bytes of a reply.
    """

    connect: float
    stall: float
    total: float | None
    largest: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, and what their first lines say."""

    place: HostAddress
    lines: bytes


def endpoint(url: str) -> Endpoint:
    """The endpoint at an address; ValueError for what is none."""
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
        f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", safe=_IN_TARGETS
    )
    host = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode()
    place = HostAddress(parts.hostname, parts.port or (443 if secure else 80), secure)
    return Endpoint(place, f"POST {target} HTTP/1.1\r\nhost: {host}\r\n".encode())


class HttpClient:
    """A provider's connections.

    They are made when they are first needed, for each event loop its own.

    `auth` and the values of `headers` are secrets: none is ever in an error. `version` is a header that is none.
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
        largest: int = LARGEST,
    ) -> None:
        self.name = name
        self.largest = largest
        secret = {**auth, **(headers or {})}
        for key, value in secret.items():
            if not _HEADER.fullmatch(key):
                raise ValueError(f"{name}: {key!r} can't be the name of a header")
            if not (value.isascii() and value.isprintable() and value.strip() == value):
                raise ValueError(
                    f"{name}: the value of {key} has a line break, a space or an odd character in it"
                )
        plain = {value.removeprefix("Bearer ") for value in secret.values()}
        escaped = {json.dumps(value)[1:-1] for value in plain}
        self._secrets = sorted(
            (each for each in plain | escaped if len(each) >= _SHORTEST), key=len, reverse=True
        )
        usual = {
            "user-agent": f"abreast/{VERSION}",
            "accept-encoding": "identity",
            "content-type": "application/json",
        }
        sent = {
            **usual,
            **dict([version] if version else []),
            **{key.lower(): value for key, value in secret.items()},
        }
        self._headers = "".join(f"{key}: {value}\r\n" for key, value in sent.items()).encode()
        self._patience = Patience(connect, stall, math.inf if total is None else total)
        self._pools: dict[asyncio.AbstractEventLoop, dict[HostAddress, ConnectionPool]] = {}

    def __repr__(self) -> str:
        """Whose it is, and whether it is in use."""
        return f"<Http of {self.name}, {len(self._pools)} sessions>"

    async def post(self, to: Endpoint, body: bytes) -> HttpAnswer:
        """Send a body and read the whole answer, whatever its status.

        An error beneath CallFailed if there is none.
        """
        exchange = await self._asked(to, body)
        try:
            return await exchange.answer()
        finally:
            exchange.close()

    async def open(self, to: Endpoint, body: bytes) -> Exchange:
        """Send a body and read the headers of the answer. Whoever opens it closes it."""
        exchange = await self._asked(to, body)
        try:
            await exchange.head()
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def close(self) -> None:
        """Close the connections of this loop; the next call would open new ones."""
        for pool in self._pools.pop(asyncio.get_running_loop(), {}).values():
            await pool.close()

    async def _asked(self, to: Endpoint, body: bytes) -> Exchange:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience.total
        try:
            connection = await self._pool(loop, to.place).take(until)
            # Nothing has a name here that holds a secret: a traceback may show what has one.
            connection.send(
                b"%s%scontent-length: %d\r\n\r\n%s" % (to.lines, self._headers, len(body), body),
                until,
            )
            return Exchange(self, connection, to.place.host)
        except (*_BROKEN, ValueError) as error:
            failure = self.failure(error, b"", to.place.host)
        raise failure

    def _pool(self, loop: asyncio.AbstractEventLoop, place: HostAddress) -> ConnectionPool:
        pools = self._pools.get(loop)
        if pools is None:
            self._pools = {loop: old for loop, old in self._pools.items() if not loop.is_closed()}
            pools = self._pools[loop] = {}
        pool = pools.get(place)
        if pool is None:
            pool = pools[place] = ConnectionPool(place, self._patience, self.largest)
        return pool

    # --- errors

    def clean(self, text: str) -> str:
        """A text without secrets, should a server have sent them back."""
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
        """What is kept of a body."""
        return raw_of(body, self.clean)

    def failure(self, error: BaseException, body: bytes, host: str | None = None) -> CallFailed:
        """The error for a connection or an answer that failed, with what had come until then."""
        if isinstance(error, TimeoutError):
            what = "connection" if isinstance(error, NotConnected) else "whole reply"
            return ReplyTimeout(f"{self.name}: no {what} in time", raw=self.raw(body))
        reason = one_line(
            self.clean(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        )
        if isinstance(error, Garbled):
            return self.broken(f"no HTTP ({reason})", body)
        if isinstance(error, ssl.SSLCertVerificationError):  # which is a ValueError too
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

    __slots__ = ("_connection", "_host", "_http", "_is_free", "_parts", "_size")

    def __init__(self, http: HttpClient, connection: Connection, host: str) -> None:
        self._http = http
        self._connection = connection
        self._host = host
        self._is_free = False
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
        """Hang up, unless the answer was read to its end: then the connection is free already."""
        if not self._is_free:
            self._is_free = True
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
        """All of it."""
        connection = self._connection
        try:
            await connection.end()
        except _BROKEN as error:
            self._parts.append(connection.taken())
            failure = self._failure(error)
        else:
            body = connection.taken()
            if connection.size <= self._http.largest:
                answer = HttpAnswer(connection.status, connection.headers, body)
                self._give_back()
                return answer
            failure = self._too_large(body)
        raise failure

    async def read(self) -> bytes:
        """The next part of the body, nothing at its end; ReplyBroken once it is too large."""
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
        """The first part of what was read."""
        kept = b""
        for part in self._parts:
            kept += part
            if len(kept) > 2 * RAW:
                break
        return kept

    async def drain(self) -> None:
        """Let a stream come to its end, so that its connection can be used again."""
        with suppress(TimeoutError, CallFailed):
            async with asyncio.timeout(_DRAIN):
                while await self.read():
                    pass

    def _give_back(self) -> None:
        if not self._is_free:
            self._is_free = True
            self._connection.give_back()

    def _failure(self, error: Exception) -> CallFailed:
        return self._http.failure(
            error, self.kept(), None if self._connection.begun else self._host
        )

    def _too_large(self, body: bytes) -> ReplyBroken:
        what = f"it is larger than {self._http.largest:,} bytes"
        return self._http.broken(what, body[: 2 * RAW], self.status)

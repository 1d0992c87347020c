"""Connections to one provider: HTTP/1.1 on asyncio, each for one request at a time, used again while they last.

Made for many small calls at once: a call is one write, one future, and a parser in C. It sends
POSTs and nothing else, and knows no redirects, cookies or proxies. How long a connection stays
silent is looked at by a timer that outlives the calls, so that none has to set one.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache

from aiohappyeyeballs import AddrInfoType, start_connection
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_MOST_HEADERS = 64 * 1024  # bytes before a body begins
_KEEP_ALIVE = 30.0
_ADDRESSES_LAST = 10.0
_SECOND_TRY = 0.25  # seconds until the next address of a host is tried beside the first one
_SUCCESS = 200  # what has a smaller status only announces the answer


class Garbled(Exception):
    """What came is no HTTP."""


class CutOff(ConnectionError):
    """The connection ended before the answer was whole; `begun` if its headers were there."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__("it was cut off" if begun else "the server hung up")
        self.begun = begun


class NotConnected(TimeoutError):
    """There was no connection in time."""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """Where a server is."""

    host: str
    port: int
    secure: bool


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to connect, seconds without a byte, and seconds for all of it."""

    connect: float = 30.0
    stall: float = 600.0
    total: float = math.inf


class Connection(asyncio.Protocol):
    """A connection. `send` a request, then wait for its `head` and read it `part` by part, or wait for its `end`.

    Whoever has read it to its end gives it back, everybody else hangs up.

    `status` and `headers` (with names in lower case) are there once `begun`, all of it once `done`.
    """

    def __init__(self, pool: ConnectionPool, stall: float, largest: int) -> None:
        """Made by a pool."""
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._stall = stall
        self._largest = largest
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._parts: list[bytes] = []
        self._heard = self._until = 0.0
        self._before = 0
        self._lasts = self._stray = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.size = 0
        self.begun = False
        self.done = True
        self.idle_since = 0.0

    def __repr__(self) -> str:
        """Whether it is in use; nothing of what was sent."""
        return f"<Connection, {'idle' if self.done else 'busy'}>"

    # --- for whoever asks

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, until: float) -> None:
        """Send a request; its answer has to be whole at `until`, by the loop's clock."""
        if self._transport is None:
            raise CutOff(begun=False)
        self.begun = self.done = False
        self.headers = {}
        self.size = self._before = 0
        self._parts = []
        self._until = until
        self._heard = self._loop.time()
        due = min(self._heard + self._stall, until)
        if self._timer is None or self._timer.when() > due:
            self._look_at(due)
        self._transport.write(request)

    async def head(self) -> None:
        """Wait for status and headers."""
        while not self.begun:
            await self._turn()

    async def part(self) -> bytes:
        """The next part of the body, nothing at its end."""
        while not self._parts and not self.done:
            await self._turn()
        return self.taken()

    async def end(self) -> None:
        """Wait for all of the answer, or for more than the largest one that may be.

        `taken` has its body.
        """
        while not self.done and self.size <= self._largest:
            await self._turn()

    def taken(self) -> bytes:
        """What came of the body until now and was not read."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def give_back(self) -> None:
        """Let the next request use it; only for who has read an answer to its end."""
        transport = self._transport
        if (
            transport is not None
            and self._lasts
            and not self._stray
            and not transport.get_write_buffer_size()
        ):
            self._pool.take_back(self)
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """End it now; what was not sent is not sent any more."""
        if self._transport is not None:
            self._transport.abort()

    async def _turn(self) -> None:
        """Wait until something comes; raises what went wrong."""
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        self.hang_up()
        self._wake()

    # --- time

    def _look_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """Whether it was silent for too long; between requests nobody looks."""
        self._timer = None
        if self.done:
            return
        due = min(self._heard + self._stall, self._until)
        if self._loop.time() < due:
            self._look_at(due)
        else:
            self._fail(TimeoutError())

    # --- for the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = transport  # type: ignore[assignment]  # what a stream's protocol is given

    def data_received(self, data: bytes) -> None:
        """Some of an answer came."""
        if self.done:  # and nobody asked for it
            self._stray = True
            self.hang_up()
            return
        self._heard = self._loop.time()
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail(Garbled("it wants to go on with another protocol"))
        except HttpParserError as error:
            self._fail(Garbled(str(error)))
        if not self.begun:
            self._before += len(data)
            if self._before > _MOST_HEADERS:
                self._fail(Garbled("its headers don't end"))
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone. An answer that doesn't say how long it is ends like that."""
        self._transport = None
        self._pool.forget(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.done:
            if (
                self.begun
                and exc is None
                and self._failure is None
                and self._ends_with_the_connection()
            ):
                self.done = True
            else:
                self._failure = self._failure or exc or CutOff(begun=self.begun)
        self._wake()

    def _ends_with_the_connection(self) -> bool:
        return "content-length" not in self.headers and "chunked" not in self.headers.get(
            "transfer-encoding", ""
        )

    # --- for the parser

    def on_message_begin(self) -> None:
        """An answer begins; a second one to the same request is nobody's."""
        self._stray = self._stray or self.done

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is there."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """All headers are there."""
        status = self._parser.get_status_code()
        if status < _SUCCESS:
            self.headers = {}
        elif not self.done:
            self.status, self.begun = status, True

    def on_body(self, body: bytes) -> None:
        """A part of the body is there.

        What is too large for whoever asked is not taken any more.
        """
        if self._stray:
            return
        self.size += len(body)
        self._parts.append(body)
        if self.size > self._largest and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """All of it is there, unless it was an announcement only."""
        self.done = self.begun
        self._lasts = self._parser.should_keep_alive()


@dataclass(eq=False, slots=True)
class ConnectionPool:
    """The connections to one place, in one loop: the one that was used last goes first."""

    place: HostAddress
    patience: Patience
    largest: int
    _idle: deque[Connection] = field(default_factory=deque)
    _open: set[Connection] = field(default_factory=set)
    _all_gone: asyncio.Event = field(default_factory=asyncio.Event)
    _resolving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _addresses: Sequence[AddrInfoType] = ()
    _resolved: float = -math.inf

    async def take(self, until: float) -> Connection:
        """A connection that is free, or a new one.

        OSError, NotConnected, or ValueError for no name of a host.
        """
        fresh = asyncio.get_running_loop().time() - _KEEP_ALIVE
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > fresh:
                return connection
            connection.hang_up()
        return await self._connected(until)

    def take_back(self, connection: Connection) -> None:
        """Keep a connection for the next request.

        Those that nobody needed for a while are closed.
        """
        now = connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        while now - self._idle[0].idle_since > _KEEP_ALIVE:
            self._idle.popleft().hang_up()

    def forget(self, connection: Connection) -> None:
        """It is gone."""
        self._open.discard(connection)
        if not self._open:
            self._all_gone.set()

    async def close(self) -> None:
        """Hang up everywhere, and wait until that is done."""
        self._idle.clear()
        for connection in self._open:
            connection.hang_up()
        if self._open:
            await self._all_gone.wait()

    async def _connected(self, until: float) -> Connection:
        loop = asyncio.get_running_loop()
        left = min(self.patience.connect, until - loop.time())
        with _too_late():
            async with asyncio.timeout(left):
                found = await start_connection(
                    await self._found(), happy_eyeballs_delay=_SECOND_TRY, loop=loop
                )
                return await self._spoken_to(found)

    async def _spoken_to(self, sock: socket.socket) -> Connection:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self, self.patience.stall, self.largest),
                sock=sock,
                ssl=_context() if self.place.secure else None,
                server_hostname=self.place.host if self.place.secure else None,
            )
        except BaseException:
            sock.close()
            raise
        self._open.add(connection)
        self._all_gone.clear()
        return connection

    async def _found(self) -> Sequence[AddrInfoType]:
        """The addresses of the host: asked for once, however many connections are made."""
        async with self._resolving:
            loop = asyncio.get_running_loop()
            if loop.time() - self._resolved > _ADDRESSES_LAST:
                self._addresses = await self._looked_up()
                self._resolved = loop.time()
            return self._addresses

    async def _looked_up(self) -> Sequence[AddrInfoType]:
        host, port = self.place.host, self.place.port
        with suppress(OSError):  # an address needs no thread to be looked up
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


@contextmanager
def _too_late() -> Iterator[None]:
    """The system's own patience may end first: that is no connection either."""
    try:
        yield
    except TimeoutError:
        raise NotConnected from None


@cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context

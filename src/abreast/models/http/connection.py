"""Connections to one provider: HTTP/1.1 on asyncio, kept alive, one request at a time each.

Made for many small calls at once: a call is one write, one future, and a parser in C. It sends only
POST requests, and has no redirects, cookies or proxies. One timer per connection checks for
silence; it outlives the calls, so that no call has to set one.
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

_MAX_HEADER_BYTES = 64 * 1024
_DNS_CACHE_SECONDS = 10.0  # for which the addresses of a host are used
_HAPPY_EYEBALLS_DELAY = 0.25  # seconds until the next address of a host is tried in parallel
_FIRST_FINAL_STATUS = 200  # a smaller status is informational, and the answer follows


class MalformedHttp(Exception):
    """The received data is no valid HTTP."""


class CutOff(ConnectionError):
    """The connection ended before the answer was complete; `begun` if its headers were."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__("it was cut off" if begun else "the server hung up")
        self.begun = begun


class NotConnected(TimeoutError):
    """No connection was made in time."""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """The host and port of a server, and whether it uses TLS."""

    host: str
    port: int
    secure: bool


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """Seconds to connect, without a byte, for the whole call, and to keep an idle connection."""

    connect: float = 30.0
    stall: float = 600.0
    total: float = math.inf
    idle: float = 30.0


class Connection(asyncio.Protocol):
    """A connection.

    `send` a request, then wait for its `head` and read it `part` by part, or wait for its `end`.
    After an answer was read to its end, call `give_back`; in all other cases call `hang_up`.

    `status` and `headers` (with names in lower case) are set once `begun`, the whole body has
    arrived once `done`.
    """

    def __init__(self, pool: ConnectionPool, stall: float, largest: int) -> None:
        """Called by a pool."""
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
        self._last_received = self._deadline = 0.0
        self._header_bytes = 0
        self._keep_alive = self._unexpected = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.size = 0
        self.begun = False
        self.done = True
        self.idle_since = 0.0

    def __repr__(self) -> str:
        """Shows whether it is in use, and nothing of the data."""
        return f"<Connection, {'idle' if self.done else 'busy'}>"

    # --- for the caller

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, until: float) -> None:
        """Send a request; its answer must be complete at `until`, by the loop's clock."""
        if self._transport is None:
            raise CutOff(begun=False)
        self.begun = self.done = False
        self.headers = {}
        self.size = self._header_bytes = 0
        self._parts = []
        self._deadline = until
        self._last_received = self._loop.time()
        due = min(self._last_received + self._stall, until)
        if self._timer is None or self._timer.when() > due:
            self._schedule_check(due)
        self._transport.write(request)

    async def head(self) -> None:
        """Wait for status and headers."""
        while not self.begun:
            await self._wait_for_data()

    async def part(self) -> bytes:
        """The next part of the body, empty at its end."""
        while not self._parts and not self.done:
            await self._wait_for_data()
        return self.take_parts()

    async def end(self) -> None:
        """Wait for the whole answer, or until it exceeds the largest size.

        `take_parts` returns its body.
        """
        while not self.done and self.size <= self._largest:
            await self._wait_for_data()

    def take_parts(self) -> bytes:
        """The received part of the body that was not read yet."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def give_back(self) -> None:
        """Release it for the next request; only after an answer was read to its end."""
        transport = self._transport
        if (
            transport is not None
            and self._keep_alive
            and not self._unexpected
            and not transport.get_write_buffer_size()
        ):
            self._pool.take_back(self)
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """Close it now; buffered data is not sent."""
        if self._transport is not None:
            self._transport.abort()

    async def _wait_for_data(self) -> None:
        """Wait for the next event of the connection; raises its failure."""
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

    def _schedule_check(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._check_silence)

    def _check_silence(self) -> None:
        """Fail if it was silent for too long; between requests, silence is allowed."""
        self._timer = None
        if self.done:
            return
        due = min(self._last_received + self._stall, self._deadline)
        if self._loop.time() < due:
            self._schedule_check(due)
        else:
            self._fail(TimeoutError())

    # --- for the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = transport  # type: ignore[assignment]  # a stream's transport

    def data_received(self, data: bytes) -> None:
        """Parse a part of an answer."""
        if self.done:  # data without a request
            self._unexpected = True
            self.hang_up()
            return
        self._last_received = self._loop.time()
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail(MalformedHttp("it wants to go on with another protocol"))
        except HttpParserError as error:
            self._fail(MalformedHttp(str(error)))
        if not self.begun:
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES:
                self._fail(MalformedHttp("its headers don't end"))
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; this ends an answer without a content length."""
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
        """An answer begins; a second one to the same request is unexpected."""
        self._unexpected = self._unexpected or self.done

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """All headers have arrived."""
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL_STATUS:
            self.headers = {}
        elif not self.done:
            self.status, self.begun = status, True

    def on_body(self, body: bytes) -> None:
        """Store a part of the body; reading pauses once it is larger than the largest size."""
        if self._unexpected:
            return
        self.size += len(body)
        self._parts.append(body)
        if self.size > self._largest and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is complete, unless it was only informational."""
        self.done = self.begun
        self._keep_alive = self._parser.should_keep_alive()


@dataclass(eq=False, slots=True)
class ConnectionPool:
    """The connections to one host in one loop; the last used one is reused first."""

    place: HostAddress
    timeouts: HttpTimeouts
    largest: int
    _idle: deque[Connection] = field(default_factory=deque)
    _open: set[Connection] = field(default_factory=set)
    _all_closed: asyncio.Event = field(default_factory=asyncio.Event)
    _resolving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _addresses: Sequence[AddrInfoType] = ()
    _resolved: float = -math.inf

    async def take(self, until: float) -> Connection:
        """A free connection, or a new one.

        Raises OSError, NotConnected, or ValueError for an invalid host name.
        """
        oldest = asyncio.get_running_loop().time() - self.timeouts.idle
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.hang_up()
        return await self._connect(until)

    def take_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, and close those that were idle too long."""
        now = connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        while now - self._idle[0].idle_since > self.timeouts.idle:
            self._idle.popleft().hang_up()

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        self._idle.clear()
        for connection in self._open:
            connection.hang_up()
        if self._open:
            await self._all_closed.wait()

    async def _connect(self, until: float) -> Connection:
        loop = asyncio.get_running_loop()
        left = min(self.timeouts.connect, until - loop.time())
        with _timeout_as_not_connected():
            async with asyncio.timeout(left):
                sock = await start_connection(
                    await self._resolve(), happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, loop=loop
                )
                return await self._open_connection(sock)

    async def _open_connection(self, sock: socket.socket) -> Connection:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self, self.timeouts.stall, self.largest),
                sock=sock,
                ssl=_context() if self.place.secure else None,
                server_hostname=self.place.host if self.place.secure else None,
            )
        except BaseException:
            sock.close()
            raise
        self._open.add(connection)
        self._all_closed.clear()
        return connection

    async def _resolve(self) -> Sequence[AddrInfoType]:
        """The addresses of the host; one lookup serves all connections made meanwhile."""
        async with self._resolving:
            loop = asyncio.get_running_loop()
            if loop.time() - self._resolved > _DNS_CACHE_SECONDS:
                self._addresses = await self._look_up()
                self._resolved = loop.time()
            return self._addresses

    async def _look_up(self) -> Sequence[AddrInfoType]:
        host, port = self.place.host, self.place.port
        with suppress(OSError):  # a numeric address needs no lookup in a thread
            return socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


@contextmanager
def _timeout_as_not_connected() -> Iterator[None]:
    """Raise NotConnected for any timeout, also for that of the operating system."""
    try:
        yield
    except TimeoutError:
        raise NotConnected from None


@cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context

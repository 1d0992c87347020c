"""A worker's end of the socket to its driver: items, replies, and what work asks of the driver."""

import asyncio
import pickle
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from itertools import count
from queue import SimpleQueue
from typing import Any, Final

from abreast.executors.replies import dumps_by_reference

HEADER: Final = struct.Struct("!QB")  # length and kind
REPLY: Final = 0  # or, to a worker, an item
ASK: Final = 1
ANSWER: Final = 2
NO_ANSWER: Final = -1  # the number of what is only posted


class WorkerChannel:
    """Receives items and sends replies; `post` and `ask` are for the code of items.

    Between items the main thread reads. Once an item has asked something, a thread reads for both.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._numbers = count()
        self._asked: dict[int, Future[bytes]] = {}
        self._requests: SimpleQueue[bytearray | None] | None = None

    def receive(self) -> bytearray | None:
        """Wait for the next item; None if there are no more."""
        if self._requests is not None:
            return self._requests.get()
        message = self._read()
        return None if message is None else message[1]

    def send(self, kind: int, message: bytes) -> None:
        """Send a message, from any thread."""
        # In one call: two would wake the driver twice.
        with self._sending:
            self._socket.sendall(HEADER.pack(len(message), kind) + message)

    def post(self, call: Callable[[], object]) -> None:
        """Have the driver call it before it uses the reply."""
        self.send(ASK, dumps_by_reference((NO_ANSWER, dumps_by_reference(call))))

    async def ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Have the driver call it; return the result, or raise the error."""
        if self._requests is None:
            self._requests = SimpleQueue()
            threading.Thread(target=self._serve, name="abreast-answers", daemon=True).start()
        number = next(self._numbers)
        future = self._asked[number] = Future()
        self.send(ASK, dumps_by_reference((number, dumps_by_reference(call))))
        return unpack_answer(await asyncio.wrap_future(future))

    def _serve(self) -> None:
        requests = self._requests
        while requests is not None:
            message = self._read()
            if message is None:
                requests.put(None)
                return
            kind, body = message
            if kind == ANSWER:
                number, reply = pickle.loads(body)  # noqa: S301 - from our driver
                future = self._asked.pop(number)
                if not future.done():  # the work may not wait for it any more
                    future.set_result(reply)
            else:
                requests.put(body)

    def _read(self) -> tuple[int, bytearray] | None:
        header = self._read_exactly(HEADER.size)
        if header is None:
            return None
        size, kind = HEADER.unpack(header)
        body = self._read_exactly(size)
        return None if body is None else (kind, body)

    def _read_exactly(self, size: int) -> bytearray | None:
        message = bytearray(size)
        rest = memoryview(message)
        while rest:
            count = self._socket.recv_into(rest)
            if not count:
                return None
            rest = rest[count:]
        return message


def unpack_answer(reply: bytes) -> Any:
    """Return what the driver returned, or raise what it raised."""
    succeeded, result, _ = pickle.loads(reply)  # noqa: S301 - from our driver
    if succeeded:
        return result
    raise result

"""The answer to one client while it is made: the call writes it, the connection sends it."""

import asyncio
from collections.abc import Mapping
from typing import Final

from abreast.core.frozen import record

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_MAX_UNSENT: Final = 1 << 20  # bytes; a call that is ahead of its client by more waits for it


@record(frozen=True, slots=True)
class AnswerHead:
    """The status and headers of an answer."""

    status: int
    content_type: str
    headers: Mapping[str, str]


class Outlet:
    """Passes an answer from the task that makes it to the task of its connection.

    All that was written is kept as `written` too, which is what is recorded.
    """

    __slots__ = ("_room", "_size", "_unsent", "_waiter", "early", "ended", "head", "written")

    def __init__(self) -> None:
        self.head: AnswerHead | None = None
        self.early = False  # the client was sent the head of a stream, to keep its connection
        self.ended = False
        self.written: list[bytes] = []
        self._unsent: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    # --- the call's side

    def begin(
        self, status: int, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """Begin the answer; nothing can change its status from now on."""
        self.head = AnswerHead(status, content_type, headers or {})

    def send(self, part: bytes) -> None:
        """Add a part of the body."""
        self.written.append(part)
        self._unsent.append(part)
        self._size += len(part)
        self._wake()

    def end(self) -> None:
        """The answer is whole."""
        self.ended = True
        self._wake()

    async def room(self) -> None:
        """Wait until the client has taken most of what was written."""
        if self._size > _MAX_UNSENT and not self.ended:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    # --- the connection's side

    async def wait(self) -> None:
        """Wait until there is something to send, or the end."""
        if not self._unsent and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def take(self) -> bytes:
        """What is to be sent now; empty if there is nothing."""
        part, self._unsent, self._size = b"".join(self._unsent), [], 0
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return part

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

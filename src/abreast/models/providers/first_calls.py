"""First calls: one with parameters new to its model goes alone, so that one refusal is enough.

A call claims its turn before its lane admits it, so that those behind it hold no place in the lane
while they wait:

    no claim --(`FirstTurn` is entered)--> claimed --(`wait`)--> sent --(`end`)--> no claim
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

ALONE_SECONDS: Final = 1.0
"""So long a call with parameters new to the model goes alone; a refusal is there by then."""

Write: TypeAlias = Callable[[], dict[str, Any]]


class AloneCall:
    """The call that goes alone: `body` is None until it is sent."""

    __slots__ = ("body", "ended", "loop", "sent")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.sent: asyncio.Future[None] = self.loop.create_future()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.body: dict[str, Any] | None = None


class FirstCalls:
    """Lets calls with parameters that are new to a model go one at a time."""

    __slots__ = ("_accept", "_alone", "_knows", "_seconds")

    def __init__(
        self,
        knows: Callable[[Mapping[str, Any]], bool],
        accept: Callable[[Mapping[str, Any]], None],
        seconds: float = ALONE_SECONDS,
    ) -> None:
        """`knows` says whether a body's parameters are accepted; `accept` remembers that."""
        self._knows = knows
        self._accept = accept
        self._seconds = seconds
        self._alone: AloneCall | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether a call goes alone now, or waits for its lane to do so."""
        return self._current() is not None

    async def claim(self, write: Write) -> AloneCall | None:
        """Wait for the turn of a call that is not admitted yet.

        None if its parameters are known by then. `write` writes its body in the present form.
        """
        while not self._knows(write()):
            alone = self._current()
            if alone is None:
                self._alone = alone = AloneCall()
                return alone
            await self._wait_for(alone)
        return None

    async def wait(self, write: Write) -> tuple[dict[str, Any], AloneCall | None]:
        """The body to send now, and if it goes alone its claim, to be ended by `end`.

        A claim that is not sent yet is taken over: it is this call's own, or of one that waits
        for its lane.
        """
        while not self._knows(body := write()):
            alone = self._current()
            if alone is None or alone.body is None:
                alone = self._alone = alone or AloneCall()
                alone.body = body
                _set_done(alone.sent)
                return body, alone
            await self._wait_for(alone)
        return body, None

    def end(self, alone: AloneCall) -> None:
        """The call that went alone was answered, or will not be sent."""
        if self._alone is alone:
            self._alone = None
        _set_done(alone.sent)
        _set_done(alone.ended)

    def _current(self) -> AloneCall | None:
        alone = self._alone
        return alone if alone and alone.loop is asyncio.get_running_loop() else None

    async def _wait_for(self, alone: AloneCall) -> None:
        await asyncio.wait([alone.sent])
        await asyncio.wait([alone.ended], timeout=self._seconds)
        if not alone.ended.done() and alone.body is not None:
            self._accept(alone.body)
            self.end(alone)


class FirstTurn:
    """The turn of one call, from before its admission to its end: an async context manager."""

    __slots__ = ("_calls", "_claim", "_write")

    def __init__(self, calls: FirstCalls, write: Write) -> None:
        self._calls = calls
        self._write = write
        self._claim: AloneCall | None = None

    @property
    def waits(self) -> bool:
        """Whether another call goes first."""
        return self._calls.is_claimed

    async def __aenter__(self) -> None:
        """Wait for the turn."""
        self._claim = await self._calls.claim(self._write)

    async def __aexit__(self, *_: object) -> None:
        # One that was sent is ended by its sender, which may be another call.
        if self._claim is not None and self._claim.body is None:
            self._calls.end(self._claim)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

"""The quota of enqueued tokens: how many may be in a lane's batches that have not ended."""

from __future__ import annotations

import asyncio
from collections import deque


class EnqueuedTokens:
    """Tokens of batches that have not ended; first come, first served.

    A batch with more tokens than all of it goes alone.
    """

    def __init__(self, most: int | None) -> None:
        """At most so many at once; None for no bound."""
        self.most = most
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<EnqueuedTokens {self.used}/{self.most}, {len(self._waiting)} waiting>"

    async def take(self, tokens: int) -> None:
        """Wait until so many fit."""
        if not self._waiting and self._fits(tokens):
            self.used += tokens
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.give(tokens)
            else:
                self._waiting.remove((tokens, turn))
            raise

    def give(self, tokens: int) -> None:
        """Give back those of a batch that has ended."""
        self.used -= tokens
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(None)

    def _fits(self, tokens: int) -> bool:
        return self.most is None or not self.used or self.used + tokens <= self.most

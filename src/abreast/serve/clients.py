"""Fairness between clients: requests that wait for a lane are taken from each client in turn."""

import asyncio
from collections import deque
from typing import Final

from abreast.core.item import Item

AHEAD: Final = 8
"""Requests that may wait at a lane; all others wait here, where clients take turns."""


class _LaneQueue:
    """The waiting requests of one lane, by client; the client whose turn is next comes first."""

    __slots__ = ("ahead", "by_client")

    def __init__(self) -> None:
        self.by_client: dict[str, deque[str]] = {}
        self.ahead = 0  # taken, and not yet sent

    def take(self) -> tuple[str, str]:
        """The next request and its client, who then is the last."""
        client, keys = next(iter(self.by_client.items()))
        key = keys.popleft()
        del self.by_client[client]
        if keys:
            self.by_client[client] = keys
        self.ahead += 1
        return client, key


class FairQueue:
    """An endless source of items for a map: one for each request, in fair order.

    Of each lane, so many requests are handed out as can be sent soon: a lane serves its waiting
    calls first come, first served, so clients could not take turns there.
    """

    def __init__(self, ahead: int = AHEAD) -> None:
        self._ahead = ahead
        self._lanes: dict[str, _LaneQueue] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<FairQueue, {self.waiting} waiting>"

    @property
    def waiting(self) -> int:
        """How many requests wait here."""
        return sum(len(keys) for lane in self._lanes.values() for keys in lane.by_client.values())

    def add(self, lane: str, client: str, key: str) -> None:
        """Add a request; its item has that key, and the lane of its client."""
        queue = self._lanes.setdefault(lane, _LaneQueue())
        queue.by_client.setdefault(client, deque()).append(key)
        self._wake()

    def remove(self, lane: str, client: str, key: str) -> bool:
        """Take a request back; False if it was handed out already."""
        queue = self._lanes.get(lane)
        keys = queue.by_client.get(client) if queue is not None else None
        if queue is None or keys is None or key not in keys:
            return False
        keys.remove(key)
        if not keys:
            del queue.by_client[client]
        return True

    def passed(self, lane: str) -> None:
        """A request that was handed out was sent, or ended without: another may follow."""
        self._lanes[lane].ahead -= 1
        self._wake()

    def close(self) -> None:
        """Hand out nothing more: the map ends when the requests under way have ended."""
        self._closed = True
        self._wake()

    async def closed(self) -> None:
        """Wait until `close` is called."""
        while not self._closed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def __aiter__(self) -> "FairQueue":
        return self

    async def __anext__(self) -> Item[str]:
        while True:
            if self._closed:
                raise StopAsyncIteration
            for name, lane in self._lanes.items():
                if lane.by_client and lane.ahead < self._ahead:
                    client, key = lane.take()
                    # The next search begins with another lane.
                    self._lanes[name] = self._lanes.pop(name)
                    return Item(key, key, lane=client_lane(client))
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def client_lane(client: str) -> str:
    """The lane in which a client's calls are drawn; no lane of a provider has such a name."""
    return f"client {client}"

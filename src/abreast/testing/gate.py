"""A gate that holds items where a test wants them, so that it can force any order."""

import asyncio
from collections.abc import Hashable


class Gate:
    """Holds items in `pass_` until it is opened for them; `arrived` lists those that have come.

    In a test:

        gate = Gate()

        async def work(x):
            await gate.pass_(x)
            return x

        await gate.wait_for(0, 1, 2)     # all three are inside
        gate.open(2)                     # the last one may go first
    """

    def __init__(self) -> None:
        self.arrived: list[Hashable] = []
        self._open: set[Hashable] = set()
        self._all = False
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}
        self._watchers: list[tuple[set[Hashable], asyncio.Future[None]]] = []

    @property
    def held(self) -> frozenset[Hashable]:
        """The items that are inside and waiting."""
        return frozenset(self._waiting)

    async def pass_(self, who: Hashable) -> None:
        """Come to the gate and wait until it is opened for `who`."""
        self.arrived.append(who)
        for wanted, watcher in self._watchers:
            if wanted <= set(self.arrived) and not watcher.done():
                watcher.set_result(None)
        if self._all or who in self._open:
            return
        self._waiting[who] = asyncio.get_running_loop().create_future()
        try:
            await self._waiting[who]
        finally:
            del self._waiting[who]

    def open(self, *who: Hashable) -> None:
        """Let these items pass, now or when they arrive."""
        self._open.update(who)
        for each in who:
            waiter = self._waiting.get(each)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def open_all(self) -> None:
        """Let all items pass from now on."""
        self._all = True
        self.open(*list(self._waiting))

    async def wait_for(self, *who: Hashable, timeout: float = 60.0) -> None:
        """Wait until all of these have arrived.

        Raises TimeoutError if they don't (`timeout` is real time, as a safety net).
        """
        if set(who) <= set(self.arrived):
            return
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append((set(who), watcher))
        async with asyncio.timeout(timeout):
            await watcher

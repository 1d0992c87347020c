"""The reader: a task that reads items which come asynchronously or may be recorded already.

A plain iterator of a new run is read by the scheduler itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from abreast.core.errors import ItemChanged, KeyReused, StoreError

if TYPE_CHECKING:
    from abreast.run.current import CurrentItem
    from abreast.run.map.scheduler import Scheduler

LOOKUP_ITEMS = 64  # items looked up in the store at once


@runtime_checkable
class BufferedItems(Protocol):
    """An async iterable that can also return buffered items without waiting."""

    @property
    def has_buffered(self) -> bool:
        """Whether the next item is buffered."""

    def take(self) -> Any:
        """The next buffered item."""


class Reader:
    """Reads items for a scheduler in a task of its own, as the window allows.

    Buffered items are passed on at once, without a turn of that task.
    """

    def __init__(self, scheduler: Scheduler, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        """For a plain or an asynchronous iterable."""
        self._scheduler = scheduler
        self._source = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._buffer = items if isinstance(items, BufferedItems) else None
        self._wake_up: asyncio.Future[None] | None = None  # while it waits for the window

    def nudge(self) -> None:
        """Read on if the window allows more items now."""
        scheduler = self._scheduler
        if self._wake_up is None or self._wake_up.done():
            return
        # Items that may be recorded are looked up first, which takes a while.
        if self._buffer is not None and not scheduler.looks_up:
            self._take_buffered(self._buffer)
        if (scheduler.wants_more or scheduler.stopped) and not self._wake_up.done():
            self._wake_up.set_result(None)

    def _take_buffered(self, buffer: BufferedItems) -> None:
        scheduler = self._scheduler
        while (
            scheduler.wants_more
            and buffer.has_buffered
            and not scheduler.stopped
            and not scheduler.exhausted
        ):
            try:
                item = scheduler.admit(buffer.take())
            except KeyReused as error:
                scheduler.fail(error)
            except Exception as error:  # noqa: BLE001 - raised by the user's key or lane function
                scheduler.exhaust(error)
            else:
                scheduler.place(item, None)

    async def run(self) -> None:
        """Read until the items end, the scheduler stops, or reading fails."""
        scheduler = self._scheduler
        while not scheduler.stopped and not scheduler.exhausted:
            if not scheduler.wants_more:
                self._wake_up = scheduler.context.loop.create_future()
                await self._wake_up
                self._wake_up = None
                continue
            try:
                items = await self._read()
                charged = bool(scheduler.run.lanes.budgets)
                known = (
                    await scheduler.journal.lookup(items, charged=charged)
                    if scheduler.journal is not None
                    else {}
                )
            except (ItemChanged, KeyReused, StoreError) as error:
                scheduler.fail(error)
                return
            for item in items:
                scheduler.place(item, known.get(item.index))

    async def _read(self) -> list[CurrentItem]:
        items: list[CurrentItem] = []
        scheduler, source, buffer = self._scheduler, self._source, self._buffer
        try:
            if isinstance(source, AsyncIterator):
                items.append(scheduler.admit(await anext(source)))
                while (
                    scheduler.looks_up
                    and buffer is not None
                    and buffer.has_buffered
                    and self._reads_on(items)
                ):
                    items.append(scheduler.admit(buffer.take()))
            else:
                while self._reads_on(items):
                    items.append(scheduler.admit(next(source)))
        except (StopIteration, StopAsyncIteration):
            scheduler.exhaust()
        except KeyReused:
            raise
        except Exception as error:  # noqa: BLE001 - raised by the items, where a loop raises it
            scheduler.exhaust(error)
        return items

    def _reads_on(self, items: list[CurrentItem]) -> bool:
        return len(items) < LOOKUP_ITEMS and self._scheduler.window.may_admit

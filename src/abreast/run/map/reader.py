"""Reading items: at once from a plain iterator, by a task where they come asynchronously or may be recorded already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from abreast.core.errors import ItemChanged, KeyReused, StoreError

if TYPE_CHECKING:
    from abreast.run.current import CurrentItem
    from abreast.run.map.scheduler import Scheduler

_AHEAD = 64  # items looked up in the store at once


@runtime_checkable
class Stocked(Protocol):
    """Items that come asynchronously, and may be at hand all the same."""

    @property
    def stocked(self) -> bool:
        """Whether the next one is."""

    def take(self) -> Any:
        """That item."""


class Reader:
    """Feeds a drive from a task of its own, as the window makes room.

    What is at hand needs no turn of it.
    """

    def __init__(self, scheduler: Scheduler, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        """For items of either kind."""
        self._scheduler = scheduler
        self._source = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._stock = items if isinstance(items, Stocked) else None
        self._idle: asyncio.Future[None] | None = None

    def nudge(self) -> None:
        """There may be room now."""
        scheduler = self._scheduler
        if self._idle is None or self._idle.done():
            return
        if (
            self._stock is not None and not scheduler.looks_up
        ):  # else it is looked up first, which takes a while
            self._feed_from(self._stock)
        if (scheduler.wants_more or scheduler.stopped) and not self._idle.done():
            self._idle.set_result(None)

    def _feed_from(self, stock: Stocked) -> None:
        scheduler = self._scheduler
        while (
            scheduler.wants_more
            and stock.stocked
            and not scheduler.stopped
            and not scheduler.exhausted
        ):
            try:
                item = scheduler.admit(stock.take())
            except KeyReused as error:
                scheduler.fail(error)
            except Exception as error:  # noqa: BLE001 - of the function that gives keys or lanes
                scheduler.exhaust(error)
            else:
                scheduler.place(item, None)

    async def run(self) -> None:
        """Read until the items end, the drive stops, or reading fails."""
        scheduler = self._scheduler
        while not scheduler.stopped and not scheduler.exhausted:
            if not scheduler.wants_more:
                self._idle = scheduler.setting.loop.create_future()
                await self._idle
                self._idle = None
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
        scheduler, source, stock = self._scheduler, self._source, self._stock
        try:
            if isinstance(source, AsyncIterator):
                items.append(scheduler.admit(await anext(source)))
                while (
                    scheduler.looks_up
                    and stock is not None
                    and stock.stocked
                    and self._reads_on(items)
                ):
                    items.append(scheduler.admit(stock.take()))
            else:
                while self._reads_on(items):
                    items.append(scheduler.admit(next(source)))
        except (StopIteration, StopAsyncIteration):
            scheduler.exhaust()
        except KeyReused:
            raise
        except Exception as error:  # noqa: BLE001 - the items' own error: raised where the plain loop would raise it
            scheduler.exhaust(error)
        return items

    def _reads_on(self, items: list[CurrentItem]) -> bool:
        return len(items) < _AHEAD and self._scheduler.window.may_admit

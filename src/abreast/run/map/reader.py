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

    def __init__(self, drive: Scheduler, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        """For items of either kind."""
        self._drive = drive
        self._source = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._stock = items if isinstance(items, Stocked) else None
        self._idle: asyncio.Future[None] | None = None

    def nudge(self) -> None:
        """There may be room now."""
        drive = self._drive
        if self._idle is None or self._idle.done():
            return
        if (
            self._stock is not None and not drive.looks_up
        ):  # else it is looked up first, which takes a while
            self._feed_from(self._stock)
        if (drive.wants_more or drive.stopped) and not self._idle.done():
            self._idle.set_result(None)

    def _feed_from(self, stock: Stocked) -> None:
        drive = self._drive
        while drive.wants_more and stock.stocked and not drive.stopped and not drive.exhausted:
            try:
                work = drive.admit(stock.take())
            except KeyReused as error:
                drive.fail(error)
            except Exception as error:  # noqa: BLE001 - of the function that gives keys or lanes
                drive.exhaust(error)
            else:
                drive.place(work, None)

    async def work(self) -> None:
        """Read until the items end, the drive stops, or reading fails."""
        drive = self._drive
        while not drive.stopped and not drive.exhausted:
            if not drive.wants_more:
                self._idle = drive.setting.loop.create_future()
                await self._idle
                self._idle = None
                continue
            try:
                works = await self._read()
                charged = bool(drive.run.lanes.budgets)
                known = (
                    await drive.book.lookup(works, charged=charged)
                    if drive.book is not None
                    else {}
                )
            except (ItemChanged, KeyReused, StoreError) as error:
                drive.fail(error)
                return
            for work in works:
                drive.place(work, known.get(work.index))

    async def _read(self) -> list[CurrentItem]:
        works: list[CurrentItem] = []
        drive, source, stock = self._drive, self._source, self._stock
        try:
            if isinstance(source, AsyncIterator):
                works.append(drive.admit(await anext(source)))
                while (
                    drive.looks_up and stock is not None and stock.stocked and self._reads_on(works)
                ):
                    works.append(drive.admit(stock.take()))
            else:
                while self._reads_on(works):
                    works.append(drive.admit(next(source)))
        except (StopIteration, StopAsyncIteration):
            drive.exhaust()
        except KeyReused:
            raise
        except Exception as error:  # noqa: BLE001 - the items' own error: raised where the plain loop would raise it
            drive.exhaust(error)
        return works

    def _reads_on(self, works: list[CurrentItem]) -> bool:
        return len(works) < _AHEAD and self._drive.window.may_admit

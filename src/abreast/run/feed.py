"""Reading items: at once from a plain iterator, by a task where they come asynchronously or may be recorded already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from abreast.core.errors import ItemChanged, KeyReused, StoreError

if TYPE_CHECKING:
    from abreast.run.current import Current
    from abreast.run.drive import Drive

_AHEAD = 64  # items looked up in the store at once


class Feeder:
    """Feeds a drive from a task of its own, as the window makes room."""

    def __init__(self, drive: Drive, source: Iterator[Any] | AsyncIterator[Any]) -> None:
        """For a source of either kind."""
        self._drive = drive
        self._source = source
        self._idle: asyncio.Future[None] | None = None

    def nudge(self) -> None:
        """There may be room now."""
        if self._idle is not None and not self._idle.done() and (self._drive.wants_more or self._drive.stopped):
            self._idle.set_result(None)

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
                known = await drive.book.lookup(works) if drive.book is not None else {}
            except (ItemChanged, KeyReused, StoreError) as error:
                drive.fail(error)
                return
            for work in works:
                drive.place(work, known.get(work.index))

    async def _read(self) -> list[Current]:
        works: list[Current] = []
        drive, source = self._drive, self._source
        try:
            if isinstance(source, AsyncIterator):
                works.append(drive.admit(await anext(source)))
            else:
                while len(works) < _AHEAD and drive.window.may_admit:
                    works.append(drive.admit(next(source)))
        except (StopIteration, StopAsyncIteration):
            drive.exhaust()
        except KeyReused:
            raise
        except Exception as error:  # noqa: BLE001 - the items' own error: raised where the plain loop would raise it
            drive.exhaust(error)
        return works

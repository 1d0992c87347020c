"""Items that can be read only once, journaled ahead of the work: resuming needs no second reading."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from abreast.core.errors import AbreastError
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE, Event
from abreast.core.item import position_key
from abreast.run.setting import Setting
from abreast.store import codec

_PAGE = 500  # items read from the journal at once
_BATCH = 100  # items handed to the loop at once, at most


class InputIncomplete(AbreastError):
    """An earlier driver died before it had read all items; they must be handed in once more, and be the same."""


class Intake:
    """Reads `items` in a thread as fast as they come, and gives them out as they are asked for.

    With a store each item is journaled as it is read, and given out from the journal: memory stays flat however far the
    reading is ahead. A later driver gives out what is journaled; only if the reading had not come to its end does it
    read `items` again, and each must then be what was read in its place before.
    """

    def __init__(self, setting: Setting, path: str, items: Iterable[Any]) -> None:
        """Nothing is read before the first item is asked for."""
        self._setting = setting
        self._path = path
        self._items = items
        self._before: list[str] = []
        self._journaled = 0
        self._unstored: list[Any] = []
        self._complete = False
        self._error: BaseException | None = None
        self._news: asyncio.Future[None] | None = None
        self._next_batch = threading.Semaphore(1)
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        """The items, once."""
        try:
            if self._setting.scribe is None:
                self._start()
                async for item in self._from_memory():
                    yield item
                return
            if self._setting.resumed:
                await self._look_back()
            if not self._complete:
                self._start()
            async for item in self._from_journal():
                yield item
        finally:
            self._closed = True
            self._next_batch.release()

    async def _from_memory(self) -> AsyncIterator[Any]:
        while self._unstored or not self._ended():
            if not self._unstored:
                await self._wait()
                continue
            batch, self._unstored = self._unstored, []
            for item in batch:
                yield item
            self._next_batch.release()

    async def _from_journal(self) -> AsyncIterator[Any]:
        after = given = 0
        while True:
            if given == self._journaled:
                if self._ended():
                    return
                await self._wait()
                continue
            page = await self._read(after, {ITEM_READ})
            for event in page:
                yield codec.decode(event.body or "null")
            after, given = page[-1].seq, given + len(page)

    def _ended(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._complete

    async def _wait(self) -> None:
        self._news = self._setting.loop.create_future()
        await self._news

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # --- the reading thread, and what it hands over -----------------------------------------------------------------

    def _start(self) -> None:
        threading.Thread(target=self._work, name=f"abreast-intake-{self._path}", daemon=True).start()

    def _work(self) -> None:
        error: BaseException | None = None
        place = 0
        batch: list[Any] = []
        try:
            for item in self._items:
                self._check(item, place + len(batch))
                batch.append(item)
                # One by one from a slow pipe, in growing batches from anything that comes faster than it is taken.
                if len(batch) >= _BATCH or self._next_batch.acquire(blocking=False):
                    if len(batch) >= _BATCH:
                        self._next_batch.acquire()
                    self._call(self._take_in, batch, place)
                    place, batch = place + len(batch), []
                if self._closed:
                    return
            if place + len(batch) < len(self._before):
                error = InputIncomplete(f"{self._path}: an earlier driver died while it read its items (it had "
                                        f"{len(self._before)}); hand them in again")  # fmt: skip
        except Exception as raised:  # noqa: BLE001 - the items' own error, raised where they are asked for
            error = raised
        if batch:
            self._next_batch.acquire()
            self._call(self._take_in, batch, place)
        self._call(self._finish, error, place + len(batch))

    def _check(self, item: Any, place: int) -> None:
        if place < len(self._before) and codec.encode(item, self._path) != self._before[place]:
            raise InputIncomplete(f"{self._path}: item {place} is not the one read before; hand in the same items")

    def _call(self, what: Any, *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever wanted the items
            self._setting.loop.call_soon_threadsafe(what, *args)

    def _take_in(self, batch: Sequence[Any], place: int) -> None:
        journal = self._setting.journal
        if self._setting.scribe is None or journal is None:
            self._unstored.extend(batch)
            self._tell()
            return
        new = list(enumerate(batch, place))[max(0, len(self._before) - place) :]
        if not new:
            self._next_batch.release()
        for number, item in new:
            key = position_key(number)
            try:
                body = codec.encode(item, f"{self._path}/{key}")
            except AbreastError as error:
                self._finish(error, number)
                return
            durable = functools.partial(self._durable, number + 1) if number == new[-1][0] else None
            journal.emit(ITEM_READ, f"{self._path}/{key}", data={"index": number}, body=body, durable=durable)

    def _durable(self, count: int) -> None:
        self._journaled = count
        self._next_batch.release()
        self._tell()

    def _finish(self, error: BaseException | None, place: int) -> None:
        if error is not None:
            self._error = self._error or error
        elif not self._complete:
            self._complete = True
            if self._setting.journal is not None:
                self._setting.journal.emit(ITEMS_COMPLETE, self._path, data={"items": place})
        self._tell()

    # --- what an earlier driver left --------------------------------------------------------------------------------

    async def _look_back(self) -> None:
        after = 0
        while page := await self._read(after, {ITEM_READ, ITEMS_COMPLETE}):
            for event in page:
                if event.kind == ITEMS_COMPLETE:
                    self._complete = True
                else:
                    self._before.append(event.body or "null")
            after = page[-1].seq
        self._journaled = len(self._before)
        if self._complete:
            self._before = []

    async def _read(self, after: int, kinds: set[str]) -> list[Event]:
        scribe, store, row = self._setting.scribe, self._setting.store, self._setting.row
        if scribe is None or store is None or row is None:
            return []
        return await scribe.read(lambda: store.events(row.id, after=after, limit=_PAGE, kinds=kinds, prefix=self._path))

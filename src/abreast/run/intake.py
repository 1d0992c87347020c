"""Items that can be read only once, journaled ahead of the work: resuming needs no second reading."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from abreast.core.errors import AbreastError
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE, Event
from abreast.core.item import position_key
from abreast.run.setting import Setting
from abreast.store import codec

_PAGE = 500  # items read from the journal at once
_FRESH = 1 << 20  # characters of items kept in memory between being journaled and being asked for
_BATCH = 100  # items handed to the loop at once, at most
_FARTHEST = 1_000_000  # items journaled and not yet given out, at most: an endless pipe must not fill the disk
_LARGEST = 256 << 20  # the same, in characters


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
        self._total: int | None = None  # items that were read, once there are no more, or no more can be
        self._given = 0
        self._ahead = 0  # characters journaled and not yet given out
        self._held_back = False
        self._fresh: deque[tuple[int, int, Any]] = deque()  # journaled a moment ago: seq, size, item
        self._kept = 0  # characters of those
        self._spilled = False  # later items are not among them, and must be read from the journal
        self._news: asyncio.Future[None] | None = None
        self._room = threading.Condition()
        self._pending: list[Any] = []  # read, not yet taken in
        self._busy = False  # a batch is on its way: what is read meanwhile waits, and goes over together
        self._taken = 0  # items taken in, or matched with those of an earlier driver
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
            with self._room:
                self._closed = True
                self._room.notify()

    async def _from_memory(self) -> AsyncIterator[Any]:
        while self._unstored or not self._ended():
            if not self._unstored:
                await self._wait()
                continue
            batch, self._unstored = self._unstored, []
            for item in batch:
                yield item
            self._take_in()

    async def _from_journal(self) -> AsyncIterator[Any]:
        after = 0
        while True:
            if self._given == self._journaled:
                # The last items may have been read and not be on disk yet.
                if self._total is not None and self._given >= self._total and self._ended():
                    return
                self._spilled = self._spilled and self._given < self._taken
                await self._wait()
                continue
            if self._fresh:
                after, size, item = self._fresh.popleft()
                self._given, self._ahead, self._kept = self._given + 1, self._ahead - size, self._kept - size
                yield item
                if self._held_back:
                    self._read_on()
                continue
            page = await self._read(after, {ITEM_READ})
            for event in page:
                yield codec.decode(event.body or "null")
                self._ahead -= len(event.body or "")
            after, self._given = page[-1].seq, self._given + len(page)
            if self._held_back:
                self._read_on()

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
        try:
            for item in self._items:
                self._check(item, place)
                place += 1
                if not self._hand_over(item):
                    return
            if place < len(self._before):
                error = InputIncomplete(f"{self._path}: an earlier driver died while it read its items (it had "
                                        f"{len(self._before)}); hand them in again")  # fmt: skip
        except Exception as raised:  # noqa: BLE001 - the items' own error, raised where they are asked for
            error = raised
        self._call(self._finish, error)

    def _hand_over(self, item: Any) -> bool:
        """One by one from a slow pipe, in batches from anything that comes faster than it is taken in."""
        with self._room:
            while len(self._pending) >= _BATCH and not self._closed:
                self._room.wait()
            self._pending.append(item)
            busy, self._busy = self._busy, True
        if not busy:
            self._call(self._take_in)
        return not self._closed

    def _check(self, item: Any, place: int) -> None:
        if place < len(self._before) and codec.encode(item, self._path) != self._before[place]:
            raise InputIncomplete(f"{self._path}: item {place} is not the one read before; hand in the same items")

    def _call(self, what: Any, *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever wanted the items
            self._setting.loop.call_soon_threadsafe(what, *args)

    def _take_in(self) -> None:
        """Journal what was read since the last time."""
        with self._room:
            batch, self._pending = self._pending, []
            self._busy = bool(batch)
            self._room.notify()
        journal = self._setting.journal
        if not batch or self._total is not None:
            return
        if self._setting.scribe is None or journal is None:
            self._unstored.extend(batch)
            self._taken += len(batch)
            self._tell()
            return
        first = max(self._taken, len(self._before))
        bodies, error = self._encoded(batch[first - self._taken :], first)
        self._taken += len(batch)
        for number, body in enumerate(bodies, first):
            last = number + 1 == first + len(bodies)
            written = functools.partial(self._written, number + 1) if last else None
            self._ahead += len(body)
            path = f"{self._path}/{position_key(number)}"
            journal.emit(ITEM_READ, path, data={"index": number}, body=body, written=written)
            self._keep_fresh(journal.seq, body)
        if error is not None:
            self._fail(error, first + len(bodies))
        elif not bodies:
            self._take_in()

    def _keep_fresh(self, seq: int, body: str) -> None:
        """Keep a few items for those who ask for them soon; from the first that is one too many, they are read back."""
        self._spilled = self._spilled or self._kept + len(body) > _FRESH
        if not self._spilled:
            self._kept += len(body)
            self._fresh.append((seq, len(body), codec.decode(body)))

    def _encoded(self, items: Sequence[Any], first: int) -> tuple[list[str], AbreastError | None]:
        """The stored forms of items, up to the first that has none, and why it has none."""
        bodies: list[str] = []
        try:
            for number, item in enumerate(items, first):
                bodies.append(codec.encode(item, f"{self._path}/{position_key(number)}"))
        except AbreastError as error:
            return bodies, error
        return bodies, None

    def _written(self, count: int) -> None:
        self._journaled = count
        self._read_on()
        self._tell()

    def _read_on(self) -> None:
        """Take in more, unless that is far enough ahead."""
        self._held_back = self._journaled - self._given >= _FARTHEST or self._ahead >= _LARGEST
        if not self._held_back:
            self._take_in()

    def _finish(self, error: BaseException | None) -> None:
        """The reading is over: take in what is left, and say so after it."""
        self._take_in()
        if error is not None:
            self._fail(error, self._taken)
        elif self._total is None:
            self._total, self._complete = self._taken, True
            if self._setting.journal is not None:
                self._setting.journal.emit(ITEMS_COMPLETE, self._path, data={"items": self._taken})
            self._tell()

    def _fail(self, error: BaseException, total: int) -> None:
        if self._total is None:
            self._total, self._error = total, error
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
        self._spilled = True  # what an earlier driver has read comes first
        self._ahead = sum(map(len, self._before))
        if self._complete:
            self._total, self._before = len(self._before), []

    async def _read(self, after: int, kinds: set[str]) -> list[Event]:
        scribe, store, row = self._setting.scribe, self._setting.store, self._setting.row
        if scribe is None or store is None or row is None:
            return []
        return await scribe.read(lambda: store.events(row.id, after=after, limit=_PAGE, kinds=kinds, prefix=self._path))
